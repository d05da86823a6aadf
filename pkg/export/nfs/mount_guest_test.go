//go:build guest

package nfs_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/test/machine"
)

// dataset makes a filesystem, mounted as Tarn mounts it, and its volume, open to
// this very host.
func (w *world) dataset(name string) (dataset string, v export.Volume) {
	w.Helper()
	dataset, dir := pool.Name+"/"+name, filepath.Join(pool.Dir(), name)
	w.must(machine.Run("zfs", "create", "-u", dataset), os.MkdirAll(dir, 0o755), unix.Mount(dataset, dir, "zfs", unix.MS_NOSUID|unix.MS_NODEV, "zfsutil"))
	w.Cleanup(func() {
		w.works(w.Remove(context.Background(), uuidA))
		// The rules before may have flushed the kernel's caches faster than its
		// clock goes, and it cleans nothing until that has caught up.
		err := unix.Unmount(dir, 0)
		for deadline := time.Now().Add(5 * time.Minute); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); err = unix.Unmount(dir, 0) {
			raw, _ := os.ReadFile("/proc/net/rpc/nfsd.export/flush")
			flushed, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
			time.Sleep(time.Until(time.Unix(flushed+1, 0)) + 100*time.Millisecond)
			w.must(machine.Run("exportfs", "-f"))
		}
		if err := errors.Join(err, machine.Run("zfs", "destroy", "-r", dataset)); err != nil {
			w.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	v = w.volume(uuidA)
	v.Source = dir
	v.Grants = []export.Grant{{Node: "here", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}}}
	return dataset, v
}

// mounts mounts the volume over NFS and returns where.
func (w *world) nfsMount(server string, v export.Volume) (string, error) {
	w.Helper()
	dir := w.TempDir()
	err := machine.Run("mount", "-t", "nfs4", "-o", "vers=4.2,proto="+map[bool]string{true: "tcp6", false: "tcp"}[server[0] == '[']+",retry=0,actimeo=0", server+":"+v.Source, dir)
	if err == nil {
		w.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH) })
	}
	return dir, err
}

func (w *world) mountable(server string, v export.Volume) {
	w.Helper()
	dir, err := w.nfsMount(server, v)
	w.works(err)
	w.must(os.WriteFile(filepath.Join(dir, "proof"), []byte("x"), 0o644))
	w.must(unix.Unmount(dir, 0))
	if _, err := os.Stat(filepath.Join(v.Source, "proof")); err != nil {
		w.Fatal(err)
	}
}

func TestGuestPublishedIsMountable(t *testing.T) {
	w := guestWorld(t)
	_, v := w.dataset("with blank")
	if _, err := w.nfsMount("127.0.0.1", v); err == nil {
		t.Fatal("it can be mounted before it is published")
	}
	w.works(w.Ensure(t.Context(), v))
	w.mountable("127.0.0.1", v)
	w.mountable("[::1]", v)
	v.Grants[0].Addresses = []netip.Addr{netip.MustParseAddr("::1")}
	w.works(w.Ensure(t.Context(), v))
	w.mountable("[::1]", v)
	if _, err := w.nfsMount("127.0.0.1", v); err == nil {
		t.Fatal("it can be mounted from an address that lost its grant")
	}
}

func TestGuestUnpublishedIsClosedAtOnce(t *testing.T) {
	w := guestWorld(t)
	_, v := w.dataset("v")
	w.works(w.Ensure(t.Context(), v))
	dir, err := w.nfsMount("127.0.0.1", v)
	w.works(err)
	w.must(os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644))
	w.works(w.Ensure(t.Context(), w.without(v)))
	began := time.Now()
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("x"), 0o644); !errors.Is(err, syscall.ESTALE) && !errors.Is(err, syscall.EACCES) {
		t.Fatalf("a write after unpublish: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	w.works(w.Ensure(t.Context(), v))
	w.must(os.WriteFile(filepath.Join(dir, "c"), []byte("x"), 0o644))
}

func (w *world) without(v export.Volume) export.Volume {
	v.Grants = nil
	return v
}

func TestGuestReadOnly(t *testing.T) {
	w := guestWorld(t)
	_, v := w.dataset("v")
	v.Grants[0].ReadOnly = true
	w.works(w.Ensure(t.Context(), v))
	dir, err := w.nfsMount("127.0.0.1", v)
	w.works(err)
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("a write to a read-only publication: %v", err)
	}
	v.Grants[0].ReadOnly = false
	w.works(w.Ensure(t.Context(), v))
	w.mountable("127.0.0.1", v)
}

// A mounted `zfs create` runs exportfs -ra, which drops what is in no file.
func TestGuestExportSurvivesZFSCommands(t *testing.T) {
	w := guestWorld(t)
	_, v := w.dataset("v")
	w.must(machine.Run("exportfs", "-o", "rw,no_subtree_check", "192.0.2.9:"+pool.Dir()))
	w.granted(pool.Dir(), "192.0.2.9")
	w.works(w.Ensure(t.Context(), v))
	dir, err := w.nfsMount("127.0.0.1", v)
	w.works(err)
	w.must(machine.Run("zfs", "create", pool.Name+"/other"))
	w.granted(pool.Dir()) // it was dropped, so this test tests something
	w.granted(v.Source, "127.0.0.1", "::1")
	w.must(os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644), machine.Run("zfs", "destroy", pool.Name+"/other"))
	w.must(os.WriteFile(filepath.Join(dir, "b"), []byte("x"), 0o644))
}

// With the option mountpoint the directory under a dataset is never served.
func TestGuestUnmountedDatasetServesNothing(t *testing.T) {
	w := guestWorld(t)
	dataset, v := w.dataset("v")
	w.must(unix.Unmount(v.Source, 0), os.MkdirAll(v.Source, 0o755), os.WriteFile(filepath.Join(v.Source, "under"), nil, 0o644))
	w.works(w.Ensure(t.Context(), v))
	if dir, err := w.nfsMount("127.0.0.1", v); err == nil {
		entries, _ := os.ReadDir(dir)
		t.Fatalf("the directory under the dataset is served: %v", entries)
	}
	w.must(os.Remove(filepath.Join(v.Source, "under")), unix.Mount(dataset, v.Source, "zfs", 0, "zfsutil"))
	w.mountable("127.0.0.1", v)
}

// An export that changes twice within a second must not leave the kernel with
// the first change.
func TestGuestQuickChanges(t *testing.T) {
	w := guestWorld(t)
	_, v := w.dataset("v")
	w.works(w.Ensure(t.Context(), v))
	w.mountable("127.0.0.1", v)
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	for i := range rounds {
		began := time.Now()
		w.works(w.Ensure(t.Context(), w.without(v)))
		w.works(w.Ensure(t.Context(), v))
		t.Logf("round %d: two changes in %v", i, time.Since(began))
		w.mountable("127.0.0.1", v)
		w.works(w.Ensure(t.Context(), w.without(v)))
		if _, err := w.nfsMount("127.0.0.1", v); err == nil {
			t.Fatal("it can be mounted after unpublish")
		}
		w.works(w.Ensure(t.Context(), v))
		w.mountable("127.0.0.1", v)
	}
}

// C20: a server that restarts and loses its table.
func TestGuestServerRestart(t *testing.T) {
	w := guestWorld(t)
	_, v := w.dataset("v")
	w.works(w.Ensure(t.Context(), v))
	dir, err := w.nfsMount("127.0.0.1", v)
	w.works(err)
	w.must(os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644))
	w.must(w.host.StopServer())
	w.must(machine.Run("rpc.nfsd", "8")) // without exportfs -r: the table is empty
	w.granted(v.Source)
	w.works(w.Ensure(t.Context(), v))
	w.must(os.WriteFile(filepath.Join(dir, "b"), []byte("x"), 0o644))
	w.mountable("127.0.0.1", v)
}

// A dataset that is destroyed and made again under the same path.
func TestGuestSamePathAnotherDataset(t *testing.T) {
	w := guestWorld(t)
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		w.works(func() error {
			w2 := *w
			var err error
			t.Run("round", func(t *testing.T) {
				w2.T = t
				_, v := w2.dataset("again")
				err = w2.Ensure(t.Context(), v)
				if err == nil {
					w2.mountable("127.0.0.1", v)
					err = w2.Ensure(t.Context(), w2.without(v))
				}
			})
			return err
		}())
	}
}

// It comes last: its many exportfs push the kernel's clock of flushes ahead, and
// the tests above would wait for that before a dataset can be unmounted.
func TestContractGuest(t *testing.T) { runRules(t, guestWorld) }
