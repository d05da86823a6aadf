package volume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
)

func (e *env) snapshot(name, volumeID string) volume.Snapshot {
	e.t.Helper()
	n, err := e.CreateSnapshot(e.t.Context(), name, volumeID, nil)
	must(e.t, err)
	return n
}

// snapshots are the ids that a listing shows.
func (e *env) snapshots(f volume.SnapshotFilter) []string {
	e.t.Helper()
	list, _, err := e.ListSnapshots(e.t.Context(), f, 0, "")
	must(e.t, err)
	var ids []string
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return ids
}

func (e *env) wantSnapshots(want ...string) {
	e.t.Helper()
	if got := e.snapshots(volume.SnapshotFilter{}); !slices.Equal(got, want) {
		e.t.Errorf("snapshots are %q, want %q", got, want)
	}
}

// commands counts the calls that run zfs(8) within a function.
func (e *env) commands(call func()) int {
	n := 0
	e.Pool.Observe(func(c zfsfake.Call) {
		switch c.Verb {
		case "mount", "unmount", "mountedat", "setroot", "release":
		default:
			n++
		}
	})
	defer e.Pool.Observe(nil)
	call()
	return n
}

func (e *env) wantCommands(what string, most int, call func()) {
	e.t.Helper()
	if n := e.commands(call); n > most {
		e.t.Errorf("%s takes %d commands, of at most %d", what, n, most)
	}
}

// A repeat is answered as the first call was, whatever happened since.
func TestCreateSnapshotAgain(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		before := time.Now()
		v := e.create(request("v", protocol))
		first := e.snapshot("s", v.ID)
		if first.ID != "tank/v@s" || first.VolumeID != "tank/v" || first.SizeBytes != gib || first.Created.Before(before.Add(-time.Second)) || first.Created.After(time.Now()) {
			t.Errorf("the snapshot is %+v", first)
		}
		same := func(when string) {
			t.Helper()
			if diff := cmp.Diff(first, e.snapshot("s", v.ID)); diff != "" {
				t.Errorf("%s the answer differs:\n%s", when, diff)
			}
			n, err := e.GetSnapshot(t.Context(), first.ID)
			must(t, err)
			if diff := cmp.Diff(first, n); diff != "" {
				t.Errorf("%s GetSnapshot differs:\n%s", when, diff)
			}
			e.wantSnapshots("tank/v@s")
		}
		same("at once")
		size := "refquota"
		if protocol == volume.ISCSI {
			size = "volsize"
		}
		must(t, e.Pool.Put(parent+"/v", size, fmt.Sprint(2*gib)))
		same("after the volume grew")
		e.start()
		same("after a restart")
		must(t, e.Delete(t.Context(), v.ID))
		same("after the volume was deleted")
		e.start()
		same("after a restart with a tombstone")
	})
}

func TestCreateSnapshotRefusals(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	e.create(request("w", "nfs"))
	e.snapshot("s", v.ID)
	must(t, e.Pool.Make(parent+"/foreign"))
	must(t, e.Pool.TakeSnapshot(parent+"/v@backup"))
	before := e.datasets()
	for _, c := range []struct {
		name, volume string
		parameters   map[string]string
		kind         error
		says         string
	}{
		{"", v.ID, nil, fault.Invalid, "name"},
		{"t", "", nil, fault.Invalid, "volume id"},
		{"t", "tank/none", nil, fault.NotFound, "tank/none"},
		{"t", "other/v", nil, fault.NotFound, "other"},
		{"t", "tank/foreign", nil, fault.NotFound, "not made by this driver"},
		{"t", "tank/v@s", nil, fault.NotFound, "POOL/NAME"},
		{"t", v.ID, map[string]string{"colour": "blue"}, fault.Invalid, "colour"},
		{"s", "tank/w", nil, fault.Exists, "tank/v@s"},
		{"backup", v.ID, nil, fault.Exists, "not made by this driver"},
		{strings.Repeat("n", 9000), v.ID, nil, fault.Invalid, "too long"},
	} {
		_, err := e.CreateSnapshot(t.Context(), c.name, c.volume, c.parameters)
		wantKind(t, err, c.kind, c.says)
	}
	e.wantDatasets(before...)
	_, err := e.CreateSnapshot(t.Context(), "meta", v.ID, map[string]string{"csi.storage.k8s.io/volumesnapshot/name": "x"})
	must(t, err)
}

// The name of a snapshot is free once it is deleted, for every volume.
func TestSnapshotNamesAreReused(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.create(request("w", protocol))
		first := e.snapshot("s", "tank/v")
		for range 2 {
			must(t, e.DeleteSnapshot(t.Context(), first.ID))
			e.wantSnapshots()
			second := e.snapshot("s", "tank/w")
			must(t, e.DeleteSnapshot(t.Context(), second.ID))
			first = e.snapshot("s", "tank/v")
		}
		e.wantSnapshots("tank/v@s")
		e.wantDatasets("v", "v@s", "w")
	})
}

// A volume that is deleted before its snapshot keeps it under the same id, and
// is gone with it. A new volume of its name has nothing to do with it.
func TestTombstone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		old := e.snapshot("s", v.ID)
		e.snapshot("t", v.ID)
		must(t, e.Delete(t.Context(), v.ID))
		must(t, e.Delete(t.Context(), v.ID))
		e.wantSnapshots("tank/v@s", "tank/v@t")
		if list, _, err := e.List(t.Context(), 0, ""); err != nil || len(list) != 0 {
			t.Errorf("volumes are %v, %v", list, err)
		}
		e.create(request("v", protocol))
		_, err := e.CreateSnapshot(t.Context(), "s", v.ID, nil)
		wantKind(t, err, fault.Exists, "deleted volume of the same name")
		e.snapshot("u", v.ID)
		e.wantSnapshots("tank/v@s", "tank/v@t", "tank/v@u")
		if got := e.snapshots(volume.SnapshotFilter{VolumeID: "tank/v"}); len(got) != 3 {
			t.Errorf("snapshots of the id are %q", got)
		}
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@t"))
		n, err := e.GetSnapshot(t.Context(), old.ID)
		must(t, err)
		if diff := cmp.Diff(old, n); diff != "" {
			t.Errorf("the old snapshot differs:\n%s", diff)
		}
		must(t, e.DeleteSnapshot(t.Context(), old.ID))
		e.wantDatasets("v", "v@u")
		e.snapshot("s", v.ID) // its name is free
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
		// The second volume goes the same way.
		must(t, e.Delete(t.Context(), v.ID))
		e.start()
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@u"))
		e.wantDatasets()
	})
}

// C55 for snapshots: what could not be ours is never looked up.
func TestOddSnapshotIDs(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	e.snapshot("s", v.ID)
	e.snapshot("t", v.ID)
	before := e.Pool.Names()
	for _, id := range []string{
		"tank/v", "tank/v@", "@s", "tank/v@s@t", "tank/v@s,t", "tank/v@s%t", "tank/v@%", "tank/v@.s", "tank/v@-r", "tank/../csi/v@s", "other/v@s",
		"tank/v@" + strings.Repeat("s", 49), "tank/none@s", "tank/v@none", "tank/.tombstones@s", "tank/group/s", "tank/v@s\x00",
	} {
		if err := e.DeleteSnapshot(t.Context(), id); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
		_, err := e.GetSnapshot(t.Context(), id)
		wantKind(t, err, fault.NotFound)
		if got := e.snapshots(volume.SnapshotFilter{SnapshotID: id}); len(got) != 0 {
			t.Errorf("%q lists %q", id, got)
		}
	}
	if diff := cmp.Diff(before, e.Pool.Names()); diff != "" {
		t.Errorf("the pool differs:\n%s", diff)
	}
	wantKind(t, e.DeleteSnapshot(t.Context(), ""), fault.Invalid)
}

func TestListSnapshots(t *testing.T) {
	e := newEnv(t)
	for _, v := range []string{"a", "b"} {
		e.create(request(v, "nfs"))
		for _, s := range []string{"2", "1"} {
			e.snapshot(v+s, "tank/"+v)
		}
	}
	page := func(limit int, token string) (got, next string) {
		list, next, err := e.ListSnapshots(t.Context(), volume.SnapshotFilter{}, limit, token)
		must(t, err)
		for _, n := range list {
			got += n.ID[len("tank/a@"):] + " "
		}
		return got, next
	}
	for _, c := range []struct {
		limit             int
		token, want, next string
	}{
		{0, "", "a1 a2 b1 b2 ", ""}, {4, "", "a1 a2 b1 b2 ", ""}, {3, "", "a1 a2 b1 ", "tank/b@b1"}, {2, "tank/a@a2", "b1 b2 ", ""},
		{1, "tank/a@a1", "a2 ", "tank/a@a2"}, {1, "tank/a@a1z", "a2 ", "tank/a@a2"}, {1, "tank/b@b2", "", ""},
	} {
		if got, next := page(c.limit, c.token); got != c.want || next != c.next {
			t.Errorf("%d from %q: %q, next %q", c.limit, c.token, got, next)
		}
	}
	for _, c := range []struct {
		f    volume.SnapshotFilter
		want string
	}{
		{volume.SnapshotFilter{VolumeID: "tank/a"}, "tank/a@a1 tank/a@a2"},
		{volume.SnapshotFilter{VolumeID: "tank/none"}, ""},
		{volume.SnapshotFilter{VolumeID: "other/a"}, ""},
		{volume.SnapshotFilter{SnapshotID: "tank/a@a1"}, "tank/a@a1"},
		{volume.SnapshotFilter{SnapshotID: "tank/a@a1", VolumeID: "tank/a"}, "tank/a@a1"},
		{volume.SnapshotFilter{SnapshotID: "tank/a@a1", VolumeID: "tank/b"}, ""},
	} {
		if got := strings.Join(e.snapshots(c.f), " "); got != c.want {
			t.Errorf("%+v: %q", c.f, got)
		}
	}
	for _, token := range []string{"x", "tank/a", "other/a@a1"} {
		_, _, err := e.ListSnapshots(t.Context(), volume.SnapshotFilter{}, 0, token)
		wantKind(t, err, fault.Aborted)
	}
	_, _, err := e.ListSnapshots(t.Context(), volume.SnapshotFilter{}, -1, "")
	wantKind(t, err, fault.Invalid)
}

// Of a pool that is not open nobody is told that its snapshots are gone.
func TestSnapshotsOfAClosedPool(t *testing.T) {
	e := newEnv(t, second)
	e.create(request("v", "nfs"))
	for _, err := range []error{
		e.DeleteSnapshot(t.Context(), "other/v@s"),
		func() error { _, err := e.GetSnapshot(t.Context(), "other/v@s"); return err }(),
		func() error { _, err := e.CreateSnapshot(t.Context(), "s", "other/v", nil); return err }(),
		func() error { _, _, err := e.ListSnapshots(t.Context(), volume.SnapshotFilter{}, 0, ""); return err }(),
	} {
		wantKind(t, err, fault.Unavailable, "other")
	}
	e.snapshot("s", "tank/v") // the other pool is in no one's way
}

// A pool whose snapshots could not be listed yet is open, and its snapshots are
// not known.
func TestSnapshotsBeforeTheFirstListing(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.snapshot("s", "tank/v")
	must(t, e.Delete(t.Context(), "tank/v"))
	e.cfg.ZFS = unlisted{e.cfg.ZFS}
	e.start()
	_, err := e.GetSnapshot(t.Context(), "tank/v@s")
	wantKind(t, err, fault.Unavailable)
	wantKind(t, e.DeleteSnapshot(t.Context(), "tank/v@s"), fault.Unavailable)
	e.create(request("w", "nfs"))
}

// unlisted cannot list snapshots.
type unlisted struct{ volume.ZFS }

func (unlisted) Snapshots(context.Context, string) ([]zfs.Dataset, error) {
	return nil, errors.New("the listing failed")
}

// A snapshot that is taken while the pool is listed is known afterwards, and one
// that is deleted meanwhile does not come back.
func TestSnapshotsWhileThePoolIsListed(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.create(request("w", "nfs"))
	e.snapshot("old", "tank/v")
	gate, entered := make(chan struct{}), make(chan struct{}, 64)
	e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "none", gate: gate, entered: entered}
	e.start()
	e.cfg.ZFS.(*gated).verb = "snapshots"
	done := make(chan error, 1)
	go func() { done <- e.Reconcile(t.Context()) }()
	<-entered
	e.snapshot("new", "tank/v")
	must(t, e.DeleteSnapshot(t.Context(), "tank/v@old"))
	must(t, e.Delete(t.Context(), "tank/v"))
	close(gate)
	must(t, <-done)
	// The index alone knows where the tombstone is.
	if n, err := e.GetSnapshot(t.Context(), "tank/v@new"); err != nil || n.ID == "" {
		t.Errorf("the new snapshot: %v", err)
	}
	e.snapshot("old", "tank/w")
	must(t, e.DeleteSnapshot(t.Context(), "tank/v@new"))
	e.wantDatasets("w", "w@old")
}

// What was destroyed by hand is in nobody's way.
func TestSnapshotsDestroyedByHand(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.create(request("w", "nfs"))
	e.snapshot("s", "tank/v")
	must(t, e.Pool.Destroy(t.Context(), parent+"/v@s"))
	_, err := e.GetSnapshot(t.Context(), "tank/v@s")
	wantKind(t, err, fault.NotFound)
	e.snapshot("s", "tank/w")
	e.wantSnapshots("tank/w@s")
	must(t, e.Pool.Destroy(t.Context(), parent+"/w@s"))
	e.snapshot("s", "tank/w")
	must(t, e.Pool.Destroy(t.Context(), parent+"/w@s"))
	must(t, e.DeleteSnapshot(t.Context(), "tank/w@s"))
}

// A snapshot whose properties make no sense can be deleted.
func TestBrokenSnapshot(t *testing.T) {
	for _, property := range []string{"tarn:size", "tarn:created", "tarn:group"} {
		t.Run(property, func(t *testing.T) {
			e := newEnv(t)
			e.create(request("v", "nfs"))
			n := e.snapshot("s", "tank/v")
			must(t, e.Pool.Put(parent+"/v@s", property, "{"))
			_, err := e.GetSnapshot(t.Context(), n.ID)
			wantKind(t, err, fault.Precondition, property)
			_, err = e.CreateSnapshot(t.Context(), "s", "tank/v", nil)
			wantKind(t, err, fault.Precondition, property)
			must(t, e.Reconcile(t.Context()))
			e.wantSnapshots(n.ID)
			must(t, e.DeleteSnapshot(t.Context(), n.ID))
			e.wantDatasets("v")
		})
	}
}

// Budgets hold whatever the number of snapshots.
func TestSnapshotBudgets(t *testing.T) {
	for _, others := range []int{0, 100} {
		e := newEnv(t)
		v := e.create(request("v", "nfs"))
		for i := range others {
			e.snapshot(fmt.Sprint("other", i), v.ID)
		}
		ctx := t.Context()
		e.wantCommands("CreateSnapshot", 2, func() { e.snapshot("s", v.ID) })
		e.wantCommands("CreateSnapshot again", 1, func() { e.snapshot("s", v.ID) })
		e.wantCommands("GetSnapshot", 1, func() { _, err := e.GetSnapshot(ctx, "tank/v@s"); must(t, err) })
		e.wantCommands("ListSnapshots", 1, func() { e.snapshots(volume.SnapshotFilter{}) })
		e.wantCommands("ListSnapshots of one", 1, func() { e.snapshots(volume.SnapshotFilter{SnapshotID: "tank/v@s"}) })
		e.wantCommands("DeleteSnapshot", 2, func() { must(t, e.DeleteSnapshot(ctx, "tank/v@s")) })
		for i := range others {
			must(t, e.DeleteSnapshot(ctx, fmt.Sprint("tank/v@other", i)))
		}
		w := e.create(request("w", "nfs"))
		for _, id := range []string{v.ID, w.ID} {
			e.snapshot(id[len("tank/"):]+"s", id)
			if id == w.ID {
				e.wantCommands("DeleteVolume with a snapshot", 3, func() { must(t, e.Delete(ctx, id)) })
			} else {
				must(t, e.Delete(ctx, id)) // makes .tombstones
			}
		}
		e.wantCommands("DeleteSnapshot, the last of a tombstone", 3, func() { must(t, e.DeleteSnapshot(ctx, "tank/w@ws")) })
		must(t, e.DeleteSnapshot(ctx, "tank/v@vs"))
		e.wantDatasets()
	}
}

// A thick volume's reservation has to be found a second time.
func TestSnapshotWithoutSpace(t *testing.T) {
	e := newEnv(t)
	r := with(request("v", "nfs"), "thin", "false")
	n, _, _, err := e.Capacity(t.Context(), nil, nil)
	must(t, err)
	r.Size.RequiredBytes = n / 3 * 2
	v := e.create(r)
	must(t, e.Pool.Write(parent+"/v", n/2))
	_, err = e.CreateSnapshot(t.Context(), "s", v.ID, nil)
	wantKind(t, err, fault.Exhausted)
	e.wantDatasets("v")
}
