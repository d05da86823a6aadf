package volume_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// What other tools made is neither listed nor deleted, and keeps a volume only
// as long as it is there.
func TestForeignSnapshots(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		must(t, e.Pool.TakeSnapshot(parent+"/v@backup"))
		must(t, e.Pool.TakeSnapshot(parent+"/v@tarn:odd name"))
		must(t, e.Pool.Put(parent+"/v@backup", "com.example:owner", "me"))
		must(t, e.Reconcile(t.Context()))
		e.wantSnapshots()
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@backup"))
		_, err := e.GetSnapshot(t.Context(), "tank/v@backup")
		wantKind(t, err, fault.NotFound)
		e.snapshot("s", v.ID)
		must(t, e.Delete(t.Context(), v.ID))
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
		must(t, e.Reconcile(t.Context()))
		graves := e.datasets()
		if len(graves) != 3 {
			t.Fatalf("datasets are %q", graves)
		}
		for _, name := range graves[1:] {
			must(t, e.Pool.Destroy(t.Context(), parent+"/"+name))
		}
		must(t, e.Reconcile(t.Context()))
		e.wantDatasets()
	})
}

// A volume that foreign snapshots alone hold goes where the configuration lets
// it, once none of them is held or cloned.
func TestDeleteForeignSnapshots(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		must(t, e.Pool.TakeSnapshot(parent+"/v@a"))
		must(t, e.Pool.TakeSnapshot(parent+"/v@b"))
		e.snapshot("s", "tank/v")
		must(t, e.Reconcile(t.Context()))
		e.wantDatasets("v", "v@a", "v@b", "v@s") // it is there
		must(t, e.Delete(t.Context(), "tank/v"))
		must(t, e.Reconcile(t.Context()))
		grave := e.datasets()[0]
		stays := func(why string) {
			t.Helper()
			must(t, e.Reconcile(t.Context()))
			if got := e.datasets(); !slices.Contains(got, grave+"@a") || !slices.Contains(got, grave+"@b") {
				t.Errorf("%s: datasets are %q", why, got)
			}
		}
		stays("it has a snapshot of ours")
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
		release, err := e.Pool.HoldSnapshot(parent + "/" + grave + "@b")
		must(t, err)
		stays("one is held")
		release()
		must(t, e.Pool.MakeClone(parent+"/"+grave+"@b", "tank/foreign"))
		stays("one has a clone")
		must(t, e.Pool.Destroy(t.Context(), "tank/foreign"))
		must(t, e.Reconcile(t.Context()))
		e.wantDatasets()
	}, func(c *volume.Config) { c.DeleteForeignSnapshots = true })
}

// What foreign snapshots hold costs a reconcile one listing, however much it is.
func TestHeldTombstonesAreCheap(t *testing.T) {
	e := newEnv(t, only("iscsi"))
	count := func() int { return e.commands(func() { must(t, e.Reconcile(t.Context())) }) }
	none := count()
	for i := range 5 {
		id := e.create(request(fmt.Sprint("v", i), "iscsi")).ID
		must(t, e.Pool.TakeSnapshot(parent+id[len("tank"):]+"@backup"))
		must(t, e.Delete(t.Context(), id))
	}
	if n := count(); n > none+1 {
		t.Errorf("a reconcile takes %d commands, without tombstones %d", n, none)
	}
}

// A snapshot that a backup tool holds frees its name at once, and goes when it
// is released.
func TestDeleteHeldSnapshot(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	first := e.snapshot("s", v.ID)
	release, err := e.Pool.HoldSnapshot(parent + "/v@s")
	must(t, err)
	must(t, e.DeleteSnapshot(t.Context(), first.ID))
	e.wantSnapshots()
	second := e.snapshot("s", v.ID)
	if !second.Created.After(first.Created) {
		t.Error("it is the first snapshot still")
	}
	must(t, e.Reconcile(t.Context()))
	release()
	must(t, e.DeleteSnapshot(t.Context(), second.ID))
	e.wantDatasets("v")
}
