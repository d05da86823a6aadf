//go:build guest

package iscsi

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// exported is a volume that is published in the guest until the test ends.
func exported(t *testing.T, list ...export.Grant) (*host, *instance, export.Volume) {
	t.Helper()
	return exportedOn(t, sparingHost(t), list...)
}

func exportedOn(t *testing.T, h *host, list ...export.Grant) (*host, *instance, export.Volume) {
	t.Helper()
	i := h.instance(t, "login")
	v := grants(h.volume(t, 1), list...)
	i.ensure(t, v)
	t.Cleanup(func() { i.remove(t, v) })
	return h, i, v
}

func TestGuestC22CredentialsAreEnforced(t *testing.T) {
	_, i, v := exported(t, chapA)
	iqn := i.names(v.UUID).iqn
	for _, c := range []struct {
		name string
		node string
		chap *chap.Credentials
		want int
	}{
		{"right", "a", &credentials, loggedIn},
		{"wrong password", "a", &others, unauthorised},
		{"wrong user", "a", &chap.Credentials{User: "x", Password: credentials.Password}, unauthorised},
		{"none", "a", nil, unauthorised},
		{"another node with them", "b", &credentials, unauthorised},
		{"right again", "a", &credentials, loggedIn},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newLogin(t, iqn, portal4, c.node, c.chap).start(); got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
		})
	}
}

func TestGuestGrantWithoutCredentials(t *testing.T) {
	_, i, v := exported(t, openA)
	iqn := i.names(v.UUID).iqn
	if got := newLogin(t, iqn, portal4, "b", nil).start(); got != unauthorised {
		t.Errorf("another node: status %d", got)
	}
	newLogin(t, iqn, portal4, "a", nil).mustStart(t)
}

func TestGuestMixedGrants(t *testing.T) {
	_, i, v := exported(t, openA, chapB)
	iqn := i.names(v.UUID).iqn
	if got := newLogin(t, iqn, portal4, "a", nil).start(); got != unauthorised {
		t.Errorf("without credentials beside one with: status %d", got)
	}
	newLogin(t, iqn, portal4, "b", chapB.CHAP).mustStart(t)
}

func TestGuestMutualCredentials(t *testing.T) {
	_, i, v := exported(t, mutualA)
	iqn := i.names(v.UUID).iqn
	wrong := mutual
	wrong.MutualPassword = "not-the-target"
	if got := newLogin(t, iqn, portal4, "a", &wrong).start(); got == loggedIn {
		t.Error("the node trusts a target that does not know its password")
	}
	t.Run("right", func(t *testing.T) { newLogin(t, iqn, portal4, "a", &mutual).mustStart(t) })
}

func TestGuestCredentialsThatTheKernelTakesAsUnset(t *testing.T) {
	h, i, v := exported(t, chapA)
	n := i.names(v.UUID)
	must(t, h.fs.Write(n.acl(initiator("a"))+"/auth/password", "NULLpassword"))
	c := chap.Credentials{User: credentials.User, Password: "NULLpassword"}
	if got := newLogin(t, n.iqn, portal4, "a", &c).start(); got != unauthorised {
		t.Errorf("status %d", got)
	}
}

func TestGuestC23DiskSaysWhoItIs(t *testing.T) {
	h, i, one := exported(t, chapA)
	two := grants(h.volume(t, 2), chapA)
	i.ensure(t, two)
	t.Cleanup(func() { i.remove(t, two) })
	seen := map[string]bool{}
	for _, v := range []export.Volume{one, two} {
		d := newLogin(t, i.names(v.UUID).iqn, portal4, "a", &credentials).mustStart(t)
		if d.lun != fmt.Sprint(LUN) {
			t.Errorf("LUN %s", d.lun)
		}
		// Four bytes of header, and the kernel counts the zero at the end.
		page, err := os.ReadFile(filepath.Join("/sys/block", d.name, "device/vpd_pg80"))
		if err != nil || len(page) < 4 || string(page[4:]) != v.UUID+"\x00" {
			t.Errorf("serial %q, want %s", page, v.UUID)
		}
		if d.sys(t, "size") != fmt.Sprint(zvolBytes/512) || d.sys(t, "ro") != "0" {
			t.Errorf("%s sectors, read-only %s", d.sys(t, "size"), d.sys(t, "ro"))
		}
		seen[d.sys(t, "device/wwid")] = true
	}
	if len(seen) != 2 {
		t.Errorf("SCSI ids: %v", seen)
	}
}

func TestGuestReadOnlyGrant(t *testing.T) {
	_, i, v := exported(t, readOnlyA, chapB)
	iqn := i.names(v.UUID).iqn
	a := newLogin(t, iqn, portal4, "a", &credentials).mustStart(t)
	b := newLogin(t, iqn, portal4, "b", chapB.CHAP).mustStart(t)
	if a.sys(t, "ro") != "1" || b.sys(t, "ro") != "0" {
		t.Errorf("read-only: a %s, b %s", a.sys(t, "ro"), b.sys(t, "ro"))
	}
	if err := writePattern(a.dev(), 'x'); err == nil {
		t.Error("a read-only grant can write")
	}
	if err := writePattern(b.dev(), 'x'); err != nil {
		t.Errorf("the other grant cannot write: %v", err)
	}
	if data, err := readDirect(a.dev()); err != nil || !bytes.Equal(data, bytes.Repeat([]byte("x"), 4096)) {
		t.Errorf("the read-only grant reads %.8q, %v", data, err)
	}
}

func TestGuestDiscardReachesTheZvol(t *testing.T) {
	_, i, v := exported(t, chapA)
	d := newLogin(t, i.names(v.UUID).iqn, portal4, "a", &credentials).mustStart(t)
	sh(t, "sh", "-c", "tr '\\0' x </dev/zero | dd of="+d.dev()+" bs=1M count=8 iflag=fullblock oflag=direct conv=fsync status=none")
	used := func() string {
		sh(t, "zpool", "sync", guestPool)
		return sh(t, "zfs", "list", "-Hpo", "referenced", zvolName(v.Source))
	}
	full := used()
	sh(t, "blkdiscard", d.dev())
	eventually(t, "the space comes back", func() error {
		if now := used(); len(now) >= len(full) {
			return fmt.Errorf("%s bytes, then %s", full, now)
		}
		return nil
	})
}

func TestGuestUnpublishDropsTheSessionAndLeavesTheOther(t *testing.T) {
	_, i, v := exported(t, chapA, chapB)
	iqn := i.names(v.UUID).iqn
	a := newLogin(t, iqn, portal4, "a", &credentials)
	diskA := a.mustStart(t)
	b := newLogin(t, iqn, portal4, "b", chapB.CHAP)
	diskB := b.mustStart(t)
	must(t, writePattern(diskB.dev(), 'd'))
	sessions := func() []string {
		list, err := i.Sessions(t.Context(), v.UUID)
		must(t, err)
		return list
	}
	if got := sessions(); !slices.Equal(got, []string{initiator("a"), initiator("b")}) {
		t.Fatalf("sessions: %v", got)
	}
	// What changes nothing for a node does not touch its session.
	i.ensure(t, grants(v, chapB, chapA))
	more := v
	more.Portals = append([]netip.AddrPort{portal6}, v.Portals...)
	i.ensure(t, more)
	if a.state() != "LOGGED_IN" || b.state() != "LOGGED_IN" || len(sessions()) != 2 {
		t.Fatalf("after a replay: %s, %s, %v", a.state(), b.state(), sessions())
	}
	i.ensure(t, grants(v, chapB))
	if got := sessions(); !slices.Equal(got, []string{initiator("b")}) {
		t.Fatalf("sessions after the unpublish: %v", got)
	}
	eventually(t, "the session of a ends", func() error {
		if s := a.state(); s == "LOGGED_IN" {
			return errors.New(s)
		}
		return nil
	})
	// The disk fails; it does not read as zeros.
	if data, err := readDirect(diskA.dev()); err == nil {
		t.Errorf("the node that lost its grant reads %.8q", data)
	}
	if data, err := readDirect(diskB.dev()); err != nil || data[0] != 'd' || b.state() != "LOGGED_IN" {
		t.Errorf("the other node reads %.8q, %v, %s", data, err, b.state())
	}
}

// Why the LUN is 1: the same change to a LUN 0 lets reads succeed.
func TestGuestLUNZeroTrap(t *testing.T) {
	h, i, v := exported(t, chapA)
	n := i.names(v.UUID)
	acl := n.acl(initiator("a"))
	must(t, h.fs.Mkdir(n.tpg+"/lun/lun_0"), h.fs.Symlink(n.backstore, n.tpg+"/lun/lun_0/x"),
		h.fs.Mkdir(acl+"/lun_0"), h.fs.Symlink(n.tpg+"/lun/lun_0", acl+"/lun_0/x"),
		h.fs.Unlink(acl+"/"+lunDir+"/"+lunDir))
	l := newLogin(t, n.iqn, portal4, "a", &credentials)
	zero := l.mustStart(t)
	if zero.lun != "0" {
		t.Fatalf("LUN %s", zero.lun)
	}
	must(t, writePattern(zero.dev(), 'z'), h.fs.Unlink(acl+"/lun_0/x"))
	data, err := readDirect(zero.dev())
	if err != nil || bytes.Contains(data, []byte("zz")) {
		t.Errorf("a LUN 0 that was taken away reads %.8q, %v: the trap is gone", data, err)
	}
	t.Logf("a LUN 0 that was taken away reads %.8q", data)
	l.stop(t)
	i.ensure(t, v) // takes the LUN 0 away again
	one := l.mustStart(t)
	if one.lun != "1" {
		t.Fatalf("LUN %s", one.lun)
	}
	if data, err := readDirect(one.dev()); err != nil || data[0] != 'z' {
		t.Fatalf("LUN 1 reads %.8q, %v", data, err)
	}
	must(t, h.fs.Unlink(acl+"/"+lunDir+"/"+lunDir))
	if data, err := readDirect(one.dev()); err == nil {
		t.Errorf("a LUN 1 that was taken away reads %.8q", data)
	}
}

// Without its mapping an ACL lets a node in that finds no disk.
func TestGuestAnACLWithoutItsLUNShowsNoDisk(t *testing.T) {
	h, i, v := exported(t, chapA)
	n := i.names(v.UUID)
	must(t, h.fs.Unlink(n.acl(initiator("a"))+"/"+lunDir+"/"+lunDir))
	l := newLogin(t, n.iqn, portal4, "a", &credentials)
	if got := l.start(); got != loggedIn {
		t.Fatalf("status %d", got)
	}
	eventually(t, "the session", func() error {
		if s := l.state(); s != "LOGGED_IN" {
			return errors.New(s)
		}
		return nil
	})
	sh(t, append(l.record(), "--rescan")...)
	if d, err := l.disk(); err == nil {
		t.Errorf("there is a disk: %+v", d)
	}
}

func TestGuestZvolRenamedUnderASession(t *testing.T) {
	_, i, v := exportedOn(t, guestHost(t), chapA)
	l := newLogin(t, i.names(v.UUID).iqn, portal4, "a", &credentials)
	l.mustStart(t)
	sh(t, "zfs", "rename", zvolName(v.Source), zvolName(v.Source)+"-renamed")
	v.Source += "-renamed"
	changes := i.changes(t, func() { i.ensure(t, v) })
	if want := []string{"write " + i.names(v.UUID).backstore + "/udev_path"}; !slices.Equal(changes, want) {
		t.Errorf("changed %v", changes)
	}
	if l.state() != "LOGGED_IN" {
		t.Errorf("session: %s", l.state())
	}
}

func TestGuestMountedDeviceIsRefused(t *testing.T) {
	h := guestHost(t)
	i := h.instance(t, "login")
	v := grants(h.volume(t, 1), chapA)
	i.waitDevice(t, v.Source)
	sh(t, "mkfs.ext4", "-q", v.Source)
	dir := t.TempDir()
	sh(t, "mount", v.Source, dir)
	defer sh(t, "umount", dir)
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Precondition) || !strings.Contains(err.Error(), v.Source) {
		t.Errorf("Ensure: %v", err)
	}
	i.remove(t, v)
}
