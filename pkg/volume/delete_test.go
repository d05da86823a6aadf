package volume_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// A volume that something depends on is put out of sight, and its name is free.
func TestDeleteWithForeignSnapshot(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		first := e.create(request("v", protocol))
		must(t, e.Pool.TakeSnapshot(parent+"/v@backup"))
		must(t, e.Delete(t.Context(), first.ID))
		graves := e.datasets()
		if len(graves) != 2 || !strings.HasPrefix(graves[0], ".tombstones/v.") || graves[1] != graves[0]+"@backup" {
			t.Fatalf("datasets are %q", graves)
		}
		list, _, err := e.List(t.Context(), 0, "")
		must(t, err)
		if len(list) != 0 {
			t.Errorf("it is still listed: %+v", list)
		}
		_, err = e.Publish(t.Context(), to(first, nodeA))
		wantKind(t, err, fault.NotFound)
		// The name is free, and may be buried a second time.
		e.create(request("v", protocol))
		must(t, e.Pool.TakeSnapshot(parent+"/v@backup"))
		must(t, e.Delete(t.Context(), first.ID))
		if n := len(e.datasets()); n != 4 {
			t.Errorf("datasets are %q", e.datasets())
		}
		e.start()
		e.wantOpened()
	})
}

// What is in use is not deleted, and nothing has changed.
func TestDeleteBusy(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	end, err := e.Pool.HoldOpen(parent + "/v")
	must(t, err)
	wantKind(t, e.Delete(t.Context(), v.ID), fault.Precondition, "still in use")
	e.wantDatasets("v")
	end()
	must(t, e.Delete(t.Context(), v.ID))
	e.wantDatasets()
}

// A client that died without its publication does not keep a volume; one that
// mounts another one from here does, and one that uses a disk from here does not.
func TestDeleteHeldByNFSClients(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	other := e.create(request("other", "nfs"))
	e.publish(to(other, nodeB))
	disk := e.create(request("disk", "iscsi"))
	e.publish(to(disk, nodeB))
	_, err := e.Pool.HoldNFS(parent+"/v", netip.MustParseAddr("192.0.2.22"), "file")
	must(t, err)
	wantKind(t, e.Delete(t.Context(), v.ID), fault.Precondition, "192.0.2.22", "file")
	must(t, e.Unpublish(t.Context(), other.ID, nodeB))
	must(t, e.Delete(t.Context(), v.ID))
	e.wantDatasets("disk", "other")
}

// C55: ids that name no volume delete nothing.
func TestDeleteOfOddIDs(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	must(t, e.Pool.Make(parent+"/foreign"))
	must(t, e.Pool.Make(parent+"/v2/below"))
	before := e.Pool.Names()
	for _, id := range []string{
		"/", "tank", "tank/", "tank//", "tank/.", "tank/..", "tank/../csi", "tank/./v", "tank/v/", "/tank/v", "tank/csi", "tank/csi/v", "tank/v@",
		"tank/v@x", "tank/%", "tank/*", "tank/v ", " tank/v", "tank/v\n", "tank/v\x00", "TANK/v", "tank/-r", "-r", "tank/foreign", "tank/v2", "tank/v2/below",
		"tank/.tombstones", strings.Repeat("a", 300), "tank/" + strings.Repeat("v", 49), "other/v",
	} {
		if err := e.Delete(t.Context(), id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if after := e.Pool.Names(); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("before %q, after %q", before, after)
	}
}

// C17: without its key a volume is neither made, found nor lost.
func TestKeyNotLoaded(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	must(t, e.Pool.UnmountByHand(parent+"/v"))
	must(t, e.Pool.LockKey(parent+"/v"))
	_, err := e.Create(t.Context(), request("v", "nfs"))
	wantKind(t, err, fault.Precondition, "zfs load-key")
	_, err = e.Publish(t.Context(), to(v, nodeA))
	wantKind(t, err, fault.Precondition, "zfs load-key")
	wantKind(t, e.Delete(t.Context(), v.ID), fault.Precondition, "zfs load-key")
	e.wantDatasets("v")
	must(t, e.Pool.Encrypt(parent+"/v"))
	e.publish(to(v, nodeA))
	e.wantOpened("v 192.0.2.21 rw")
}

// A volume whose properties make no sense is listed and can be deleted, and is
// in nobody's way.
func TestBrokenVolume(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	good := e.create(request("w", "nfs"))
	must(t, e.Pool.Put(parent+"/v", "tarn:request", "{"))
	_, err := e.Publish(t.Context(), to(v, nodeA))
	wantKind(t, err, fault.Precondition, "tarn:request")
	_, err = e.Create(t.Context(), request("v", "nfs"))
	wantKind(t, err, fault.Precondition, "tarn:request")
	e.publish(to(good, nodeA))
	must(t, e.LoseExports(false))
	must(t, e.Reconcile(t.Context()))
	e.wantOpened("w 192.0.2.21 rw")
	list, _, err := e.List(t.Context(), 0, "")
	must(t, err)
	if len(list) != 2 {
		t.Errorf("%d volumes are listed", len(list))
	}
	must(t, e.Delete(t.Context(), v.ID))
	e.wantDatasets("w")
}
