package storage

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

const uuid = "0123456789abcdef0123456789abcdef"

// What is exported over NFS is held, and is served to the granted address only.
func TestExportedDirectoryIsBusy(t *testing.T) {
	h := New(t)
	ctx := t.Context()
	dir := h.Dir("tank/csi/v")
	must(t, h.ZFS().Create(ctx, zfs.Spec{Name: "tank/csi/v"}))
	must(t, h.ZFS().Mount(ctx, "tank/csi/v", dir, true))
	e := h.Exporters(Quiet())["nfs"]
	node, other := netip.MustParseAddr("192.0.2.21"), netip.MustParseAddr("2001:db8::22")
	v := export.Volume{ID: "tank/v", UUID: uuid, Source: dir, Grants: []export.Grant{
		{Node: "a", Addresses: []netip.Addr{node}}, {Node: "b", Addresses: []netip.Addr{other}, ReadOnly: true},
	}}
	must(t, e.Ensure(ctx, v))
	if granted, writable := h.Granted(dir, node); !granted || !writable {
		t.Errorf("granted %t, writable %t: %q", granted, writable, h.Exports())
	}
	if granted, writable := h.Granted(dir, other); !granted || writable {
		t.Errorf("granted %t, writable %t: %q", granted, writable, h.Exports())
	}
	if err := h.ZFS().Unmount(ctx, dir); err == nil {
		t.Error("an exported directory was unmounted")
	}
	must(t, e.Remove(ctx, uuid))
	if left := append(h.Exports(), h.ExportFiles()...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	must(t, h.ZFS().Unmount(ctx, dir))
	if granted, _ := h.Granted(dir, node); granted {
		t.Error("what is not mounted is served")
	}
}

// A zvol that a target maps cannot be destroyed.
func TestClaimedZvolIsBusy(t *testing.T) {
	h := New(t)
	ctx := t.Context()
	h.Pool.SetFresh(0)
	must(t, h.ZFS().Create(ctx, zfs.Spec{Name: "tank/csi/v", VolumeBytes: 1 << 20, Thin: true}))
	e := h.Exporters(Quiet())["iscsi"]
	v := export.Volume{ID: "tank/v", UUID: uuid, Source: "/dev/zvol/tank/csi/v", SizeBytes: 1 << 20,
		Portals: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:3260")},
		Grants:  []export.Grant{{Node: "a", Initiator: h.Naming.Initiator("a"), CHAP: &chap.Credentials{User: "a", Password: "sixteen-letters!"}}}}
	must(t, e.Ensure(ctx, v))
	if err := h.ZFS().Destroy(ctx, "tank/csi/v"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("destroy of an exported zvol: %v", err)
	}
	must(t, h.LoseConfigfs(ctx))
	must(t, h.ZFS().Destroy(ctx, "tank/csi/v"))
	if h.Disk(v.Source) != nil {
		t.Error("the device is still there")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
