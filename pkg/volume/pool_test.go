package volume_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// second configures a pool whose parent may be missing, behind the first.
func second(c *volume.Config) {
	p := c.Pools[0]
	p.Name, p.Parent = "other", "tank/other"
	c.Pools = append(c.Pools, p)
}

// A pool that is not there is said to be missing and stops nothing else; once
// it is imported it is used.
func TestPoolAppears(t *testing.T) {
	e := newEnv(t, second)
	wantKind(t, e.Reconcile(t.Context()), fault.Unavailable, `"other"`, "zfs create tank/other")
	v := e.create(request("v", "nfs"))
	e.publish(to(v, nodeA))
	e.wantOpened("v 192.0.2.21 rw")
	_, err := e.Create(t.Context(), with(request("w", "nfs"), "pool", "other"))
	wantKind(t, err, fault.Unavailable, "other")
	// Nobody is told that its volumes are gone.
	wantKind(t, e.Delete(t.Context(), "other/w"), fault.Unavailable)
	wantKind(t, e.Unpublish(t.Context(), "other/w", nodeA), fault.Unavailable)
	_, _, err = e.List(t.Context(), 0, "")
	wantKind(t, err, fault.Unavailable)

	must(t, e.Pool.Make("tank/other"))
	must(t, e.Reconcile(t.Context()))
	w := e.create(with(request("w", "nfs"), "pool", "other"))
	if w.ID != "other/w" {
		t.Errorf("id %s", w.ID)
	}
}

// Ready answers from the last look of Run, and never waits. A pool that is not
// there does not make the driver unready for the others.
func TestReadyWithOneOfTwoPools(t *testing.T) {
	e := newEnv(t, second)
	wantKind(t, e.Ready(), fault.Unavailable, "starting")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { e.Run(ctx); close(ended) }()
	waitFor(t, func() bool { return e.Ready() == nil })
	_, err := e.Create(t.Context(), with(request("w", "nfs"), "pool", "other"))
	wantKind(t, err, fault.Unavailable, `"other"`)
	e.create(request("v", "nfs"))
	cancel()
	<-ended
}

// One process at a time has a parent.
func TestSecondProcess(t *testing.T) {
	e := newEnv(t)
	cfg := e.cfg
	cfg.Exporters = e.Exporters(storage.Quiet())
	s, err := volume.New(cfg)
	must(t, err)
	wantKind(t, s.Reconcile(t.Context()), fault.Unavailable, "another process serves parent "+parent)
	_, err = s.Create(t.Context(), request("v", "nfs"))
	wantKind(t, err, fault.Unavailable)
	e.wantDatasets()
	must(t, e.Close())
	must(t, s.Reconcile(t.Context()))
	_, err = s.Create(t.Context(), request("v", "nfs"))
	must(t, err)
	must(t, s.Close())
}

// A parent belongs to one driver name.
func TestOtherDriver(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.cfg.Driver = "csi.other.example"
	e.start()
	wantKind(t, e.Reconcile(t.Context()), fault.Precondition, driver, "--driver-name")
	_, err := e.Create(t.Context(), request("w", "nfs"))
	wantKind(t, err, fault.Precondition, driver)
	wantKind(t, e.Delete(t.Context(), "tank/v"), fault.Precondition)
	e.wantDatasets("v")
}

func TestList(t *testing.T) {
	e := newEnv(t)
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		e.create(request(name, "nfs"))
	}
	must(t, e.Pool.Make(parent+"/foreign"))
	ids := func(limit int, token string) (got string, next string) {
		list, next, err := e.List(t.Context(), limit, token)
		must(t, err)
		for _, v := range list {
			got += v.ID[len("tank/"):]
		}
		return got, next
	}
	for _, c := range []struct {
		limit             int
		token, want, next string
	}{
		{0, "", "abcde", ""}, {5, "", "abcde", ""}, {9, "", "abcde", ""}, {4, "", "abcd", "tank/d"},
		{2, "", "ab", "tank/b"}, {2, "tank/b", "cd", "tank/d"}, {2, "tank/d", "e", ""}, {0, "tank/b", "cde", ""}, {2, "tank/e", "", ""},
	} {
		if got, next := ids(c.limit, c.token); got != c.want || next != c.next {
			t.Errorf("%d from %q: %q, next %q", c.limit, c.token, got, next)
		}
	}
	// What is deleted between two pages, the token's own volume too, neither
	// repeats nor hides another.
	must(t, e.Delete(t.Context(), "tank/b"))
	must(t, e.Delete(t.Context(), "tank/c"))
	if got, _ := ids(2, "tank/b"); got != "de" {
		t.Errorf("after a deletion: %q", got)
	}
	for _, token := range []string{"x", "other/v", "tank/", "1"} {
		_, _, err := e.List(t.Context(), 0, token)
		wantKind(t, err, fault.Aborted)
	}
	_, _, err := e.List(t.Context(), -1, "")
	wantKind(t, err, fault.Invalid)
}

func TestCapacity(t *testing.T) {
	e := newEnv(t)
	free := func() int64 {
		n, _, _, err := e.Capacity(t.Context(), nil, nil)
		must(t, err)
		return n
	}
	before := free()
	if before <= 0 || before > storage.PoolBytes {
		t.Errorf("%d bytes of %d", before, storage.PoolBytes)
	}
	e.create(with(request("v", "nfs"), "thin", "false"))
	if after := free(); after > before-gib {
		t.Errorf("%d bytes after a reservation, %d before", after, before)
	}
	_, _, _, err := e.Capacity(t.Context(), map[string]string{"colour": "blue"}, nil)
	wantKind(t, err, fault.Invalid)
	_, _, _, err = e.Capacity(t.Context(), map[string]string{"pool": "none"}, nil)
	wantKind(t, err, fault.Invalid)
}

// waitFor polls with short pauses until ok or the test's patience ends.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen in 10 s")
		}
		timer := time.NewTimer(pause)
		<-timer.C
	}
}

// A parent that is not mounted where ZFS would mount it is mounted before its
// volumes are: `zfs mount -a` would cover them.
func TestParentIsMountedFirst(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	e.publish(to(v, nodeA))
	must(t, e.LoseExports(false))
	must(t, e.Pool.Reboot(false))
	if mounts, _ := e.Pool.Mounts(t.Context()); mounts[parent] != "" {
		t.Fatal("the parent is mounted already")
	}
	e.start()
	mounts, err := e.Pool.Mounts(t.Context())
	must(t, err)
	if mounts[parent] != e.Dir("tank/csi") || mounts[parent+"/v"] != e.Dir("tank/csi/v") {
		t.Errorf("mounted: %q", mounts)
	}
	e.wantOpened("v 192.0.2.21 rw")
}

// So is what lies above the parent, of which `zpool import -N` mounts nothing. What
// ZFS would not mount there is left alone, and does not keep the parent from its place.
func TestWhatIsAboveTheParentIsMountedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(e *env) error
		mounted bool
	}{
		"canmount=on":        {func(*env) error { return nil }, true},
		"canmount=noauto":    {func(e *env) error { return e.Pool.Put("tank", "canmount", "noauto") }, false},
		"a directory in use": {func(e *env) error { return os.MkdirAll(filepath.Join(e.Dir("tank"), "other"), 0o755) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.publish(to(e.create(request("v", "nfs")), nodeA))
			must(t, e.LoseExports(false))
			must(t, e.Pool.Reboot(false))
			must(t, e.Pool.UnmountByHand("tank"))
			must(t, c.prepare(e))
			e.start()
			mounts, err := e.Pool.Mounts(t.Context())
			must(t, err)
			want := map[string]string{parent: e.Dir("tank/csi"), parent + "/v": e.Dir("tank/csi/v")}
			if c.mounted {
				want["tank"] = e.Dir("tank")
			}
			if !maps.Equal(mounts, want) {
				t.Errorf("mounted: %q, want %q", mounts, want)
			}
			e.wantOpened("v 192.0.2.21 rw")
		})
	}
}

// While an import mounts filesystems nothing is mounted beside it, since the
// import would cover it.
func TestParentWaitsForAnImport(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	must(t, e.LoseExports(false))
	must(t, e.Pool.Reboot(false))
	e.Pool.SetMounting(true)
	e.start()
	wantKind(t, e.Reconcile(t.Context()), fault.Unavailable, "zpool import")
	_, err := e.Create(t.Context(), request("w", "nfs"))
	wantKind(t, err, fault.Unavailable, "zpool import")
	if mounts, _ := e.Pool.Mounts(t.Context()); mounts[parent]+mounts[parent+"/v"] != "" {
		t.Errorf("mounted: %q", mounts)
	}
	must(t, e.Pool.MountByHand(parent, e.Dir(parent))) // by the import, which goes on with other datasets
	must(t, e.Reconcile(t.Context()))
	e.wantOpened("v 192.0.2.21 rw")
}

// One that ZFS would not mount is left alone, and so is one whose place is
// taken; the pool can be used.
func TestParentThatIsNotMounted(t *testing.T) {
	for name, prepare := range map[string]func(e *env) error{
		"canmount=off": func(e *env) error { return e.Pool.Put(parent, "canmount", "off") },
		"a directory in use": func(e *env) error {
			return os.MkdirAll(filepath.Join(e.Dir("tank/csi"), "other"), 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			must(t, e.Pool.UnmountByHand(parent))
			must(t, prepare(e))
			e.start()
			mounts, err := e.Pool.Mounts(t.Context())
			must(t, err)
			if mounts[parent] != "" {
				t.Errorf("the parent is mounted at %s", mounts[parent])
			}
			e.publish(to(e.create(request("v", "nfs")), nodeA))
		})
	}
}

// A process that does one thing takes the pool for that, and only if nobody has
// it.
func TestOpenIsExclusive(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.publish(to(v, nodeA))
	cfg := e.cfg
	cfg.Exporters = e.Exporters(storage.Quiet())
	other, err := volume.New(cfg)
	must(t, err)
	wantKind(t, other.Open(t.Context(), v.ID), fault.Unavailable, "another process serves")
	wantKind(t, other.Unpublish(t.Context(), v.ID, nodeA), fault.Unavailable)
	wantKind(t, other.Open(t.Context(), "nopool/v"), fault.NotFound)
	e.wantOpened("v 192.0.2.21 rw")
	must(t, e.Close())
	must(t, other.Open(t.Context(), v.ID))
	must(t, other.Unpublish(t.Context(), v.ID, nodeA))
	e.wantOpened()
	must(t, other.Close())
}
