package volume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// full asks for a full copy.
func full(r volume.CreateRequest, s volume.Source) volume.CreateRequest {
	return with(from(r, s), "cloneMode", "full")
}

// A full copy has its source's data and nothing else in common with it: the
// source and its space are gone while the copy lives.
func TestFullCopy(t *testing.T) {
	for name, source := range map[string]volume.Source{"snapshot": ofSnapshot("tank/v@s"), "volume": ofVolume("tank/v")} {
		t.Run(name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, e *env, protocol string) {
				e.create(request("v", protocol))
				e.write("v", protocol, "first")
				e.snapshot("s", "tank/v")
				r := sized(full(request("c", protocol), source), 2*gib, 0)
				c := e.create(r)
				if c.CapacityBytes != 2*gib || c.Source != source {
					t.Errorf("the copy is %+v", c)
				}
				e.wantData("c", protocol, "first")
				e.wantDatasets(".incoming", "c", "v", "v@s")
				d, err := e.ZFS().Get(t.Context(), parent+"/c")
				must(t, err)
				if got := max(d.Bytes("volsize"), d.Bytes("refquota")); got != 2*gib {
					t.Errorf("the dataset has %d bytes", got)
				}
				same := func(when string) {
					t.Helper()
					if diff := cmp.Diff(c, e.create(r)); diff != "" {
						t.Errorf("%s the answer differs:\n%s", when, diff)
					}
				}
				same("at once")
				e.snapshot("t", "tank/c") // no snapshot of the source's came along
				must(t, e.DeleteSnapshot(t.Context(), "tank/c@t"))
				must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
				must(t, e.Delete(t.Context(), "tank/v"))
				e.wantDatasets(".incoming", "c")
				e.start()
				same("without its source")
				_, err = e.Create(t.Context(), from(request("c", protocol), source))
				wantKind(t, err, fault.Exists, "cloneMode")
				e.publish(to(c, nodeA))
				must(t, e.Unpublish(t.Context(), c.ID, nodeA))
				must(t, e.Delete(t.Context(), c.ID))
				e.wantDatasets(".incoming")
			})
		})
	}
}

// Only a full copy can be in another pool.
func TestFullCopyToAnotherPool(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		must(t, e.Pool.Make("tank/other"))
		must(t, e.Reconcile(t.Context()))
		e.create(request("v", protocol))
		e.snapshot("s", "tank/v")
		for _, s := range []volume.Source{ofSnapshot("tank/v@s"), ofVolume("tank/v")} {
			_, err := e.Create(t.Context(), with(from(request("c", protocol), s), "pool", "other"))
			wantKind(t, err, fault.Invalid, "cloneMode full")
			c := e.create(with(full(request("c", protocol), s), "pool", "other"))
			if c.ID != "other/c" {
				t.Errorf("the copy is %+v", c)
			}
			must(t, e.Delete(t.Context(), c.ID))
		}
		must(t, e.Reconcile(t.Context()))
		e.wantDatasets("v", "v@s")
	}, second)
}

// The parameter is stored where it is not the default alone: volumes are older
// than it.
func TestCloneModeIsNotStoredAsDefault(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.create(with(request("v", "nfs"), "cloneMode", "linked"))
	d, err := e.ZFS().Get(t.Context(), parent+"/v")
	must(t, err)
	if v, _ := d.Value("tarn:request"); strings.Contains(v, "cloneMode") {
		t.Errorf("the request is %s", v)
	}
	_, err = e.Create(t.Context(), with(request("v", "nfs"), "cloneMode", "full"))
	wantKind(t, err, fault.Exists, "cloneMode")
	_, err = e.Create(t.Context(), with(request("w", "nfs"), "cloneMode", "half"))
	wantKind(t, err, fault.Invalid, "linked or full")
}

func TestFullCopiesCutOffAtEachStep(t *testing.T) {
	create := func(name string, s volume.Source) func(*env, string) (any, error) {
		return func(e *env, protocol string) (any, error) {
			return e.Create(e.t.Context(), sized(full(request(name, protocol), s), 2*gib, 0))
		}
	}
	del := func(id string) func(*env, string) (any, error) {
		return func(e *env, _ string) (any, error) { return nil, e.Delete(e.t.Context(), id) }
	}
	cutOffAtEachStep(t, []step{
		{"create", func(e *env, protocol string) (any, error) { return e.Create(e.t.Context(), request("v", protocol)) }},
		{"snapshot", func(e *env, _ string) (any, error) { return e.CreateSnapshot(e.t.Context(), "s", "tank/v", nil) }},
		{"copy the snapshot", create("a", ofSnapshot("tank/v@s"))},
		{"copy the volume", create("b", ofVolume("tank/v"))},
		{"delete the snapshot", func(e *env, _ string) (any, error) { return nil, e.DeleteSnapshot(e.t.Context(), "tank/v@s") }},
		{"delete the volume", del("tank/v")},
		{"delete a copy", del("tank/a")},
		{"delete the other", del("tank/b")},
	})
}

// Whatever a cut-off copy has left, deleting the volume removes it, and nobody
// takes it for a volume.
func TestUnfinishedCopyIsDeleted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		for _, source := range []volume.Source{ofSnapshot("tank/v@s"), ofVolume("tank/v")} {
			e.create(request("v", protocol))
			e.snapshot("s", "tank/v")
			for k := 0; ; k++ {
				e.Pool.CutAfter(k, errKilled)
				_, err := e.Create(t.Context(), full(request("c", protocol), source))
				e.Pool.Heal()
				if err == nil {
					must(t, e.Delete(t.Context(), "tank/c"))
					break
				}
				e.start()
				if list, _, err := e.List(t.Context(), 0, ""); err != nil || len(list) > 2 {
					t.Errorf("after %d calls: volumes are %v, %v", k, list, err)
				}
				must(t, e.Delete(t.Context(), "tank/c"))
				must(t, e.Reconcile(t.Context()))
				if want := []string{"v", "v@s"}; !slices.Equal(slices.DeleteFunc(e.datasets(), func(s string) bool { return s == ".incoming" }), want) {
					t.Errorf("after %d calls: datasets are %q", k, e.datasets())
				}
			}
			must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
			must(t, e.Delete(t.Context(), "tank/v"))
		}
	})
}

// What was received for another request, or of another snapshot of the same
// name, is not used.
func TestReceivedCopyOfAnotherSnapshotIsNotUsed(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.write("v", protocol, "old")
		e.snapshot("s", "tank/v")
		r := full(request("c", protocol), ofSnapshot("tank/v@s"))
		// Cut off before the copy gets its name.
		e.cfg.ZFS = &failing{ZFS: e.cfg.ZFS, verb: "rename"}
		e.start()
		if _, err := e.Create(t.Context(), r); !errors.Is(err, errKilled) {
			t.Fatalf("%v", err)
		}
		e.cfg.ZFS.(*failing).verb = ""
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
		e.write("v", protocol, "new")
		e.snapshot("s", "tank/v")
		e.create(r)
		e.wantData("c", protocol, "new")
		must(t, e.Delete(t.Context(), "tank/c"))

		// The same for a plain volume of that name.
		e.cfg.ZFS.(*failing).verb = "rename"
		if _, err := e.Create(t.Context(), r); !errors.Is(err, errKilled) {
			t.Fatalf("%v", err)
		}
		e.cfg.ZFS.(*failing).verb = ""
		e.create(request("c", protocol))
		must(t, e.Delete(t.Context(), "tank/c"))
		e.wantDatasets(".incoming", "v", "v@s")
	})
}

// A snapshot that a copy of a volume left behind is not taken again when nobody
// knows of the copy: its data is old.
func TestOldSnapshotForACopyIsNotUsed(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.write("v", "nfs", "old")
	e.cfg.ZFS = &failing{ZFS: e.cfg.ZFS, verb: "copy"}
	e.start()
	r := full(request("c", "nfs"), ofVolume("tank/v"))
	if _, err := e.Create(t.Context(), r); !errors.Is(err, errKilled) {
		t.Fatalf("%v", err)
	}
	e.cfg.ZFS.(*failing).verb = ""
	must(t, e.Delete(t.Context(), "tank/c"))
	e.write("v", "nfs", "new")
	e.create(r)
	e.wantData("c", "nfs", "new")
}

// failing fails the calls of one verb, without effect.
type failing struct {
	volume.ZFS
	verb string
}

func (f *failing) Rename(ctx context.Context, from, to string) error {
	if f.verb == "rename" {
		return errKilled
	}
	return f.ZFS.Rename(ctx, from, to)
}

func (f *failing) Copy(ctx context.Context, snapshot string, s zfs.Spec) error {
	if f.verb == "copy" {
		return errKilled
	}
	return f.ZFS.Copy(ctx, snapshot, s)
}

// slowCopy copies until its context ends, or until it may go on.
type slowCopy struct {
	volume.ZFS
	entered, gate chan struct{}
}

func (z slowCopy) Copy(ctx context.Context, snapshot string, s zfs.Spec) error {
	select {
	case z.entered <- struct{}{}:
	default:
	}
	select {
	case <-z.gate:
		return z.ZFS.Copy(ctx, snapshot, s)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copying starts a copy of tank/v to tank/c that does not end by itself.
func (e *env) copying(timeout time.Duration) (z slowCopy, done chan error) {
	e.t.Helper()
	z = slowCopy{ZFS: e.cfg.ZFS, entered: make(chan struct{}, 1), gate: make(chan struct{})}
	e.create(request("v", "nfs"))
	e.cfg.ZFS, e.cfg.Operation = z, timeout
	e.start()
	done = make(chan error, 1)
	go func() {
		_, err := e.Create(context.Background(), full(request("c", "nfs"), ofVolume("tank/v")))
		done <- err
	}()
	<-z.entered
	return z, done
}

// A copy outlives the bound of other operations, and its source can be used and
// deleted meanwhile.
func TestLongCopy(t *testing.T) {
	e := newEnv(t)
	const bound = time.Second
	z, done := e.copying(bound)
	wantKind(t, func() error {
		_, err := e.Create(t.Context(), full(request("c", "nfs"), ofVolume("tank/v")))
		return err
	}(), fault.Busy, "CreateVolume")
	must(t, e.Reconcile(t.Context()))
	if got := e.hiddenOf("v"); !strings.HasPrefix(got, "v@.copy.") {
		t.Error("the snapshot that is copied was destroyed")
	}
	timer := time.NewTimer(bound + 100*time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-timer.C:
	}
	e.publish(to(volume.Volume{ID: "tank/v"}, nodeA))
	must(t, e.Unpublish(t.Context(), "tank/v", nodeA))
	must(t, e.Delete(t.Context(), "tank/v"))
	must(t, e.Reconcile(t.Context()))
	close(z.gate)
	if err := <-done; err != nil {
		// The copy was asked of the snapshot's old name: a repeat says that the source is gone.
		wantKind(t, err, fault.NotFound)
	}
}

// An end of the daemon does not wait for a copy, which goes on after the next
// start.
func TestShutdownCutsACopyOff(t *testing.T) {
	e := newEnv(t)
	z, done := e.copying(5 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, e.Drain(ctx))
	wantKind(t, <-done, fault.Unavailable, "goes on")
	close(z.gate)
	e.start()
	e.create(full(request("c", "nfs"), ofVolume("tank/v")))
	must(t, e.Delete(t.Context(), "tank/c"))
	must(t, e.Delete(t.Context(), "tank/v"))
	e.wantDatasets(".incoming")
}

// A volume that is deleted while it is copied is copied no further.
func TestDeleteEndsACopy(t *testing.T) {
	e := newEnv(t)
	_, done := e.copying(5 * time.Second)
	if err := e.Delete(t.Context(), "tank/c"); err != nil {
		wantKind(t, err, fault.Busy)
	}
	wantKind(t, <-done, fault.Aborted, "deleted")
	must(t, e.Delete(t.Context(), "tank/c"))
	must(t, e.Reconcile(t.Context()))
	e.wantDatasets("v")
}
