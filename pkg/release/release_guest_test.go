//go:build guest

package release

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/test/machine"
)

var pool = machine.Pool{Name: "tarn-release-test", Bytes: 256 << 20, Mountpoint: "a b"}

func TestMain(m *testing.M) { os.Exit(pool.Run(m, clean, machine.Nothing)) }

// clean takes away what a run that was killed has left.
func clean() error {
	_ = machine.Run("umount", "-a", "-l", "-t", "nfs4")
	return errors.Join(machine.Run("exportfs", "-ua"), machine.Run("modprobe", "dm_mod"))
}

// guest is the guest's own host, with the parts that tests need.
type guest struct {
	*testing.T
	*Releaser
	zfs *zfs.Client
}

func newGuest(t *testing.T) guest {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := run.New(log)
	c, err := zfs.New(r, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return guest{t, New(r), c}
}

func (g guest) must(errs ...error) {
	g.Helper()
	for _, err := range errs {
		if err != nil {
			g.Fatal(err)
		}
	}
}

const exportOptions = "rw,sync,no_subtree_check,mountpoint,sec=sys,no_root_squash"

// exported makes a filesystem, exports it to this host, and mounts it over NFS.
func (g guest) exported(name string) (dataset, dir, mountpoint string) {
	g.Helper()
	dataset, dir = pool.Name+"/"+name, filepath.Join(pool.Dir(), name)
	g.must(g.zfs.Create(g.Context(), zfs.Spec{Name: dataset}), g.zfs.Mount(g.Context(), dataset, dir, true))
	g.must(os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o644))
	g.must(machine.Run("exportfs", "-o", exportOptions, "127.0.0.1:"+dir))
	mountpoint = g.TempDir()
	g.must(machine.Run("mount", "-t", "nfs4", "-o", "vers=4.2,retry=0", "127.0.0.1:"+dir, mountpoint))
	g.Cleanup(func() { _ = unix.Unmount(mountpoint, unix.MNT_FORCE|unix.MNT_DETACH) })
	return dataset, dir, mountpoint
}

// unexport closes it, in a second of its own, so that the kernel's export cache
// is cleaned.
func (g guest) unexport(dir string) {
	g.Helper()
	flushed, err := g.lastFlush()
	g.must(err)
	time.Sleep(time.Until(time.Unix(flushed+1, 0)))
	g.must(machine.Run("exportfs", "-u", "127.0.0.1:"+dir))
}

func (g guest) busy(err error) {
	g.Helper()
	if !errors.Is(err, zfs.ErrBusy) {
		g.Fatalf("it should be busy: %v", err)
	}
}

// A client that is gone holds what it had open until its state is ended.
func TestGuestStateOfADeadClientIsEnded(t *testing.T) {
	g := newGuest(t)
	dataset, dir, mountpoint := g.exported("v")
	f, err := os.Open(filepath.Join(mountpoint, "file"))
	g.must(err)
	defer f.Close()
	_, err = io.ReadAll(f)
	g.must(err)
	g.unexport(dir)
	g.busy(g.zfs.Unmount(t.Context(), dir))

	err = g.Release(t.Context(), Held{Dir: dir, Alive: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1") || !strings.Contains(err.Error(), "file") {
		t.Fatalf("the client that is alive, and its file, are not named: %v", err)
	}
	g.busy(g.zfs.Unmount(t.Context(), dir))

	g.must(g.Release(t.Context(), Held{Dir: dir, Alive: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}))
	g.must(g.zfs.Unmount(t.Context(), dir), g.zfs.Destroy(t.Context(), dataset))
}

// delegations counts those of all clients.
func (g guest) delegations() int {
	g.Helper()
	n := 0
	clients, err := filepath.Glob("/proc/fs/nfsd/clients/*/states")
	g.must(err)
	for _, path := range clients {
		raw, _ := os.ReadFile(path) // it may be gone
		n += strings.Count(string(raw), "type: deleg")
	}
	return n
}

// A file that was merely read leaves a delegation.
func TestGuestDelegationIsEnded(t *testing.T) {
	g := newGuest(t)
	dataset, dir, mountpoint := g.exported("v")
	// Not every open gets one: not the first before the server can call back.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := os.ReadFile(filepath.Join(mountpoint, "file"))
		g.must(err)
		if g.delegations() > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server gives no delegation")
		}
	}
	g.unexport(dir)
	g.busy(g.zfs.Unmount(t.Context(), dir))
	g.must(g.Release(t.Context(), Held{Dir: dir}), g.zfs.Unmount(t.Context(), dir), g.zfs.Destroy(t.Context(), dataset))
}

// Exports that change faster than once a second keep a filesystem busy that
// nobody uses.
func TestGuestQuickExportsAreWaitedFor(t *testing.T) {
	g := newGuest(t)
	dataset, dir, mountpoint := g.exported("v")
	g.must(unix.Unmount(mountpoint, 0))
	for range 8 {
		g.must(os.WriteFile("/proc/net/rpc/nfsd.fh/flush", []byte("1\n"), 0o644), os.WriteFile("/proc/net/rpc/nfsd.export/flush", []byte("1\n"), 0o644))
	}
	g.must(machine.Run("mount", "-t", "nfs4", "-o", "vers=4.2,retry=0", "127.0.0.1:"+dir, mountpoint), unix.Unmount(mountpoint, 0))
	g.must(machine.Run("exportfs", "-u", "127.0.0.1:"+dir))
	flushed, err := g.lastFlush()
	g.must(err)
	if flushed <= time.Now().Unix() {
		t.Fatalf("the flushes were not faster than the clock: this test shows nothing")
	}
	g.busy(g.zfs.Unmount(t.Context(), dir))
	// Somebody else's flush may come in between: then it says so, and is called again.
	machine.Eventually(t, "the release", func() bool {
		err := g.Release(t.Context(), Held{Dir: dir})
		if err != nil && !errors.Is(err, fault.Unavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	g.must(g.zfs.Unmount(t.Context(), dir), g.zfs.Destroy(t.Context(), dataset))
}

// A node that made its block volume a physical volume shows its volume group to
// the storage host.
func TestGuestLogicalVolumes(t *testing.T) {
	g := newGuest(t)
	dataset := pool.Name + "/z"
	g.must(g.zfs.Create(t.Context(), zfs.Spec{Name: dataset, VolumeBytes: 64 << 20, Thin: true, Properties: []zfs.Setting{{Name: "volmode", Value: "dev"}}}))
	device := zfs.DevicePath(dataset)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(device); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	g.must(machine.Run("vgcreate", "tarn-vg", device), machine.Run("lvcreate", "-an", "-Zn", "-n", "a-b", "-L", "16M", "tarn-vg"),
		machine.Run("lvcreate", "-an", "-Zn", "-n", "c", "-L", "16M", "tarn-vg"), machine.Run("vgchange", "-ay", "tarn-vg"))
	g.busy(g.zfs.Destroy(t.Context(), dataset))

	mountpoint := t.TempDir()
	g.must(machine.Run("mkfs.ext4", "-q", "/dev/tarn-vg/a-b"), machine.Run("mount", "/dev/tarn-vg/a-b", mountpoint))
	err := g.Release(t.Context(), Held{Device: device})
	if err == nil || !strings.Contains(err.Error(), "a--b") || !strings.Contains(err.Error(), "unmount") {
		t.Errorf("the mounted logical volume is not named: %v", err)
	}
	if _, err := os.Stat(filepath.Join(mountpoint, "lost+found")); err != nil {
		t.Errorf("the mounted logical volume is gone: %v", err)
	}
	g.must(unix.Unmount(mountpoint, 0), g.Release(t.Context(), Held{Device: device}))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := g.zfs.Destroy(t.Context(), dataset)
		if err == nil {
			break
		}
		if !errors.Is(err, zfs.ErrBusy) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
