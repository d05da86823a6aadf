package volume_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

func (e *env) group(name string, volumes ...string) volume.Group {
	e.t.Helper()
	g, err := e.CreateGroup(e.t.Context(), name, volumes, nil)
	must(e.t, err)
	return g
}

// ids are those of the members.
func ids(g volume.Group) []string {
	var list []string
	for _, n := range g.Snapshots {
		list = append(list, n.ID)
	}
	return list
}

// A group is taken at once, answered alike at each repeat, and goes as a whole.
func TestGroup(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.create(sized(request("w", protocol), 2*gib, 0))
		first := e.group("g", "tank/w", "tank/v")
		if first.ID != "tank/group/g" || len(first.Snapshots) != 2 {
			t.Fatalf("the group is %+v", first)
		}
		for i, want := range []struct {
			volume string
			bytes  int64
		}{{"tank/v", gib}, {"tank/w", 2 * gib}} {
			n := first.Snapshots[i]
			if n.VolumeID != want.volume || n.SizeBytes != want.bytes || n.GroupID != first.ID || !n.Created.Equal(first.Created) || !strings.HasPrefix(n.ID, want.volume+"@") {
				t.Errorf("member %d is %+v", i, n)
			}
		}
		same := func(when string) {
			t.Helper()
			if diff := cmp.Diff(first, e.group("g", "tank/v", "tank/w")); diff != "" {
				t.Errorf("%s the answer differs:\n%s", when, diff)
			}
			g, err := e.GetGroup(t.Context(), first.ID, ids(first))
			must(t, err)
			if diff := cmp.Diff(first, g); diff != "" {
				t.Errorf("%s GetGroup differs:\n%s", when, diff)
			}
			list, _, err := e.ListSnapshots(t.Context(), volume.SnapshotFilter{}, 0, "")
			must(t, err)
			if diff := cmp.Diff(first.Snapshots, list); diff != "" {
				t.Errorf("%s the listing differs:\n%s", when, diff)
			}
		}
		same("at once")
		e.start()
		same("after a restart")
		must(t, e.Delete(t.Context(), "tank/v"))
		same("with a tombstone")
		e.start()
		same("with a tombstone, and after a restart")

		// A member is a source like every snapshot, and does not go alone.
		e.create(from(request("c", protocol), ofSnapshot(first.Snapshots[0].ID)))
		wantKind(t, e.DeleteSnapshot(t.Context(), first.Snapshots[0].ID), fault.Invalid, first.ID)
		must(t, e.DeleteGroup(t.Context(), first.ID, ids(first)))
		must(t, e.DeleteGroup(t.Context(), first.ID, ids(first)))
		e.wantSnapshots()
		_, err := e.GetGroup(t.Context(), first.ID, nil)
		wantKind(t, err, fault.NotFound)
		must(t, e.Delete(t.Context(), "tank/c"))
		must(t, e.Delete(t.Context(), "tank/w"))
		e.wantDatasets()
	})
}

func TestGroupRefusals(t *testing.T) {
	e := newEnv(t, second)
	must(t, e.Pool.Make("tank/other"))
	must(t, e.Reconcile(t.Context()))
	for _, name := range []string{"v", "w", "x"} {
		e.create(request(name, "nfs"))
	}
	e.create(with(request("v", "nfs"), "pool", "other"))
	e.group("g", "tank/v", "tank/w")
	e.group("o", "other/v")
	before := e.Pool.Names()
	for _, c := range []struct {
		name    string
		volumes []string
		kind    error
		says    string
	}{
		{"", []string{"tank/v"}, fault.Invalid, "name"},
		{"h", nil, fault.Invalid, "no source volume"},
		{"h", []string{"tank/v", ""}, fault.Invalid, "empty"},
		{"h", []string{"tank/v", "tank/v"}, fault.Invalid, "twice"},
		{"h", []string{"tank/v", "other/v"}, fault.Invalid, "different pools"},
		{"h", []string{"tank/v", "tank/none"}, fault.NotFound, "tank/none"},
		{"h", []string{"none/v"}, fault.NotFound, "none"},
		{"g", []string{"tank/v"}, fault.Exists, "v, w"},
		{"g", []string{"tank/v", "tank/x"}, fault.Exists, "v, w"},
		{"g", []string{"tank/x"}, fault.Exists, "v, w"},
		{"o", []string{"tank/x"}, fault.Exists, "other/group/o"},
	} {
		_, err := e.CreateGroup(t.Context(), c.name, c.volumes, nil)
		wantKind(t, err, c.kind, c.says)
	}
	_, err := e.CreateGroup(t.Context(), "h", []string{"tank/v"}, map[string]string{"colour": "blue"})
	wantKind(t, err, fault.Invalid, "colour")
	for _, id := range []string{"tank/group/none", "tank/v", "tank/v@s", "none/group/g", "tank/group/../v", "tank/group/g@s", "reallyfake"} {
		must(t, e.DeleteGroup(t.Context(), id, nil))
		_, err := e.GetGroup(t.Context(), id, nil)
		wantKind(t, err, fault.NotFound)
	}
	for _, wrong := range [][]string{{"tank/v@s"}, {"tank/group/g"}, ids(e.group("g", "tank/v", "tank/w"))[:1], append(ids(e.group("g", "tank/v", "tank/w")), "tank/x@y")} {
		wantKind(t, e.DeleteGroup(t.Context(), "tank/group/g", wrong), fault.Invalid, "snapshot_ids")
		_, err := e.GetGroup(t.Context(), "tank/group/g", wrong)
		wantKind(t, err, fault.Invalid, "snapshot_ids")
	}
	wantKind(t, e.DeleteGroup(t.Context(), "", nil), fault.Invalid)
	if diff := cmp.Diff(before, e.Pool.Names()); diff != "" {
		t.Errorf("the pool differs:\n%s", diff)
	}
}

// A group of deleted volumes is not mistaken for one of new volumes of their
// names.
func TestGroupOfATombstone(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	g := e.group("g", "tank/v")
	must(t, e.Delete(t.Context(), "tank/v"))
	e.create(request("v", "nfs"))
	_, err := e.CreateGroup(t.Context(), "g", []string{"tank/v"}, nil)
	wantKind(t, err, fault.Exists, "deleted volume")
	must(t, e.DeleteGroup(t.Context(), g.ID, ids(g)))
	e.wantDatasets("v")
	e.group("g", "tank/v")
}

// A deletion that fails in between is completed by the next one; meanwhile the
// group is neither whole nor forgotten.
func TestGroupDeletedInPart(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	e.create(request("w", "nfs"))
	g := e.group("g", "tank/v", "tank/w")
	for _, restart := range []bool{false, true} {
		end, err := e.Pool.HoldOpen(parent + "/" + strings.TrimPrefix(g.Snapshots[1].ID, "tank/"))
		must(t, err)
		wantKind(t, e.DeleteGroup(t.Context(), g.ID, ids(g)), fault.Precondition, g.Snapshots[1].ID)
		end()
		if restart {
			e.start()
		}
		_, err = e.CreateGroup(t.Context(), "g", []string{"tank/v", "tank/w"}, nil)
		wantKind(t, err, fault.Exists, "delete the group")
		rest, err := e.GetGroup(t.Context(), g.ID, ids(g))
		must(t, err)
		if diff := cmp.Diff(g.Snapshots[1:], rest.Snapshots); diff != "" {
			t.Errorf("what is left differs:\n%s", diff)
		}
		must(t, e.DeleteGroup(t.Context(), g.ID, ids(g)))
		e.wantSnapshots()
		g = e.group("g", "tank/v", "tank/w")
	}
}

// A group that the index does not know, since its maker never learned of it, is
// found by what the caller names.
func TestGroupWhoseMakerWasCutOff(t *testing.T) {
	for _, what := range []string{"create again", "delete"} {
		t.Run(what, func(t *testing.T) {
			e := newEnv(t)
			e.create(request("v", "nfs"))
			e.create(request("w", "nfs"))
			e.Pool.FailAfterNth(3, errKilled) // two reads, and then the snapshots
			_, err := e.CreateGroup(t.Context(), "g", []string{"tank/v", "tank/w"}, nil)
			if err == nil {
				t.Fatal("it did not fail")
			}
			members := e.snapshots(volume.SnapshotFilter{})
			if len(members) != 2 {
				t.Fatalf("snapshots are %q", members)
			}
			if what == "create again" {
				if g := e.group("g", "tank/v", "tank/w"); !slices.Equal(ids(g), members) {
					t.Errorf("members are %q", ids(g))
				}
			}
			must(t, e.DeleteGroup(t.Context(), "tank/group/g", members))
			e.wantDatasets("v", "w")
		})
	}
}

func TestGroupsCutOffAtEachStep(t *testing.T) {
	create := func(name string) func(*env, string) (any, error) {
		return func(e *env, protocol string) (any, error) { return e.Create(e.t.Context(), request(name, protocol)) }
	}
	del := func(id string) func(*env, string) (any, error) {
		return func(e *env, _ string) (any, error) { return nil, e.Delete(e.t.Context(), id) }
	}
	cutOffAtEachStep(t, []step{
		{"create one", create("v")},
		{"create another", create("w")},
		{"group", func(e *env, _ string) (any, error) {
			return e.CreateGroup(e.t.Context(), "g", []string{"tank/v", "tank/w"}, nil)
		}},
		{"delete one", del("tank/v")},
		{"delete the group", func(e *env, _ string) (any, error) { return nil, e.DeleteGroup(e.t.Context(), "tank/group/g", nil) }},
		{"delete another", del("tank/w")},
	})
}
