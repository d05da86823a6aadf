package volume_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// orphans lists them as "kind name removal", without the parent.
func (e *env) orphans() ([]volume.Orphan, []string) {
	e.t.Helper()
	list, err := e.look().Orphans(e.t.Context())
	must(e.t, err)
	var words []string
	for _, o := range list {
		words = append(words, fmt.Sprintf("%s %s %s", o.Kind, strings.TrimPrefix(o.Name, parent+"/"), o.Removal))
	}
	return list, words
}

func (e *env) wantOrphans(want ...string) []volume.Orphan {
	e.t.Helper()
	list, got := e.orphans()
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("the orphans differ (-want +got)\n%s", diff)
	}
	return list
}

// A host on which everything is claimed has none.
func TestNoOrphans(t *testing.T) {
	eachProtocol(t, func(_ *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.publish(to(v, nodeA))
		e.snapshot("s", v.ID)
		e.create(from(request("c", protocol), volume.Source{SnapshotID: "tank/v@s"}))
		e.wantOrphans()
	})
}

const strayUUID = "0123456789abcdef0123456789abcdef"

// What a person or another tool has made is shown and never removed, whatever
// is asked for.
func TestForeignOrphansStay(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", volume.NFS))
	must(t, e.Pool.Make(parent+"/mine"))
	must(t, e.Pool.Bare(parent+"/bare", 1<<20))
	must(t, e.Pool.Make(parent+"/v/below"))
	must(t, e.Pool.TakeSnapshot(parent+"/v@backup-1"))
	must(t, e.Pool.TakeSnapshot(parent+"/v@backup-2"))
	must(t, e.Pool.Make(parent+"/.tombstones/strange"))
	must(t, e.Pool.Make(parent+"/odd name", zfs.Setting{Name: "tarn:name", Value: `"x"`}))
	for _, dir := range []string{"iqn.2003-01.org.example:theirs", e.Naming.Target(strayUUID) + "x"} {
		must(t, e.Configfs.Mkdir("target/iscsi/"+dir))
	}
	for _, dir := range []string{e.Dir(parent + "/v"), e.Dir("elsewhere")} {
		must(t, e.ForeignExport(dir, "192.0.2.99"))
	}
	before, targets, exports := e.Pool.Names(), e.Targets(), e.Exports()
	want := []string{
		"dataset .tombstones/strange foreign", "dataset bare foreign", "dataset mine foreign", "dataset odd name foreign", "dataset v/below foreign",
		"export 192.0.2.99:" + e.Dir(parent+"/v") + " foreign",
		"snapshots v foreign", "target " + "iqn.2003-01.org.example:theirs foreign", "target " + e.Naming.Target(strayUUID) + "x foreign",
	}
	list := e.wantOrphans(want...)
	if len(volume.Removable(list)) > 0 {
		t.Errorf("to be removed: %+v", volume.Removable(list))
	}
	must(t, e.Close())
	for i := range list {
		list[i].Removal = volume.RemovalYes // as if another listing had said so
	}
	removed, err := e.look().RemoveOrphans(t.Context(), list)
	must(t, err)
	if len(removed) > 0 || !slices.Equal(before, e.Pool.Names()) || !slices.Equal(targets, e.Targets()) || !slices.Equal(exports, e.Exports()) {
		t.Errorf("removed %+v", removed)
	}
}

// What is left of volumes that are gone is removed beside the daemon, and no
// other export is touched.
func TestStrayExportsAreRemoved(t *testing.T) {
	e := newEnv(t)
	nfs, block := e.create(request("n", volume.NFS)), e.create(request("b", volume.ISCSI))
	gone := e.create(request("gone", volume.ISCSI))
	for _, v := range []volume.Volume{nfs, block, gone} {
		e.publish(to(v, nodeA))
	}
	d, err := e.Pool.Get(t.Context(), parent+"/gone")
	must(t, err)
	uuid, _ := d.Own("tarn:uuid")
	// It lost all that made it a volume; the backstore still holds the zvol.
	for _, p := range []string{"tarn:name", "tarn:uuid"} {
		must(t, e.Pool.Inherit(t.Context(), parent+"/gone", p))
	}
	must(t, e.StrayExport(e.ExportFiles()[0], strayUUID))
	list := e.wantOrphans("dataset gone foreign", "export "+strayUUID+" yes", "target "+e.Naming.Target(uuid)+" yes")
	removed, err := e.look().RemoveOrphans(t.Context(), volume.Removable(list))
	must(t, err)
	if len(removed) != 2 {
		t.Errorf("removed %+v", removed)
	}
	e.wantOrphans("dataset gone foreign")
	if len(e.ExportFiles()) != 1 || e.claimed("gone") || !e.claimed("b") {
		t.Errorf("export files %q", e.ExportFiles())
	}
}

// claimed reports whether a target has a zvol.
func (e *env) claimed(name string) bool {
	return slices.ContainsFunc(e.Targets(), func(line string) bool {
		return strings.Contains(line, "UDEV PATH: /dev/zvol/"+parent+"/"+name+"  ")
	})
}

// Exports are of no volume only if every pool was read, and if no pool at all
// has the volume: a command with too few pools removes nothing.
func TestNoExportIsStrayThatMayHaveAVolume(t *testing.T) {
	e := newEnv(t)
	must(t, e.Pool.Make("tank/other"))
	other := e.cfg.Pools[0]
	other.Name, other.Parent = "other", "tank/other"
	e.cfg.Pools = append(e.cfg.Pools, other)
	e.start()
	e.publish(to(e.create(request("v", volume.NFS)), nodeA))
	e.publish(to(e.create(with(request("w", volume.ISCSI), "pool", "other")), nodeA))
	e.wantOrphans()
	all := e.cfg.Pools
	e.cfg.Pools = all[:1]
	if _, got := e.orphans(); len(got) != 1 || !strings.HasSuffix(got[0], " foreign") {
		t.Errorf("with one of the pools: %q", got)
	}
	e.cfg.Pools = append([]volume.PoolConfig{}, all...)
	e.cfg.Pools[1].Parent = "tank/nowhere"
	list, err := e.look().Orphans(t.Context())
	wantKind(t, err, fault.Unavailable, "tank/nowhere")
	if len(list) > 0 {
		t.Errorf("with a pool that cannot be read: %+v", list)
	}
}

// A deleted volume is kept by what needs it, which is told; the last one is
// destroyed by the daemon, or by the command when none runs.
func TestTombstonesAreExplained(t *testing.T) {
	e := newEnv(t)
	for _, name := range []string{"a", "b", "c"} {
		v := e.create(request(name, volume.ISCSI))
		must(t, e.Pool.Write(parent+"/"+name, 3<<20))
		if name != "b" {
			e.snapshot("s-"+name, v.ID)
		}
		if name != "a" {
			must(t, e.Pool.TakeSnapshot(parent+"/"+name+"@backup"))
		}
		must(t, e.Delete(t.Context(), v.ID))
	}
	list, _ := e.orphans()
	want := []struct{ kind, why string }{
		{volume.OrphanSnapshots, "made by another tool: backup"}, {volume.OrphanSnapshots, "made by another tool: backup"},
		{volume.OrphanTombstone, "kept for snapshot s-a"}, {volume.OrphanTombstone, "only foreign snapshots hold"}, {volume.OrphanTombstone, "kept for snapshot s-c"},
	}
	if len(list) != len(want) {
		t.Fatalf("%+v", list)
	}
	for i, w := range want {
		o := list[i]
		if o.Kind != w.kind || !strings.Contains(o.Why, w.why) || o.Removal == volume.RemovalYes || o.Kind == volume.OrphanTombstone && o.Bytes < 3<<20 {
			t.Errorf("%+v, want %s: %s", o, w.kind, w.why)
		}
	}
	// The daemon dies before it has destroyed what nothing needs.
	must(t, e.Pool.Destroy(t.Context(), list[3].Name+"@backup"))
	free, words := e.orphans()
	if words[2] != "tombstone "+strings.TrimPrefix(list[3].Name, parent+"/")+" stopped" {
		t.Fatalf("%q", words)
	}
	// While it runs, it is the one to do that.
	removed, err := e.look().RemoveOrphans(t.Context(), volume.Removable(free))
	wantKind(t, err, fault.Unavailable, "another process serves", "no daemon")
	if len(removed) > 0 {
		t.Errorf("removed %+v", removed)
	}
	must(t, e.Close())
	other := e.look()
	removed, err = other.RemoveOrphans(t.Context(), volume.Removable(free))
	must(t, err)
	must(t, other.Close())
	if len(removed) != 1 || slices.Contains(e.Pool.Names(), list[3].Name) || !slices.Contains(e.Pool.Names(), list[2].Name) {
		t.Errorf("removed %+v", removed)
	}
}

// Unfinished copies, and what looking left behind, go when no daemon could be
// at work on them.
func TestUnfinishedWorkIsRemoved(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.ISCSI))
	s := e.snapshot("s", v.ID)
	marks := []zfs.Setting{{Name: "tarn:name", Value: `"w"`}}
	must(t, e.Pool.Make(parent+"/.incoming"))
	must(t, e.Pool.MakePartial(parent+"/v@s", zfs.Spec{Name: parent + "/.incoming/w", VolumeBytes: gib, Thin: true, Properties: marks}))
	must(t, e.Pool.Bare(parent+"/.untouched.x", 1<<20))
	list := e.wantOrphans("copy .incoming/.copy.w stopped", "dataset .untouched.x stopped")
	must(t, e.Close())
	other := e.look()
	removed, err := other.RemoveOrphans(t.Context(), volume.Removable(list))
	must(t, err)
	must(t, other.Close())
	if len(removed) != 2 {
		t.Errorf("removed %+v", removed)
	}
	e.start()
	e.wantOrphans()
	_, err = e.GetSnapshot(t.Context(), s.ID)
	must(t, err)
}

// leavings are those of a node.
type leavings struct {
	sessions, staged map[string]string
	// pods are the ids of one look after the other.
	pods *[]map[string]bool
}

func (l leavings) Sessions(context.Context) (map[string]string, error) { return l.sessions, nil }
func (l leavings) Staged(context.Context) (map[string]string, error)   { return l.staged, nil }

func (l leavings) Pods(context.Context) (map[string]bool, bool, error) {
	if l.pods == nil {
		return nil, false, nil
	}
	now := (*l.pods)[0]
	*l.pods = (*l.pods)[1:]
	return now, true, nil
}

// A pod's volume is an orphan where a node keeps records, and has none of it.
func TestVolumesOfPodsThatNoNodeKnowsAreShown(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", volume.NFS))
	pod := with(request("e", volume.NFS), volume.ParamEphemeral, "true")
	e.create(with(with(pod, volume.ParamPodName, "web-0"), volume.ParamPodNamespace, "shop"))
	e.wantOrphans()
	e.cfg.Leavings = leavings{}
	e.wantOrphans() // no node keeps records here
	is := map[string]bool{"tank/e": true}
	for _, looks := range [][]map[string]bool{{is, is}, {is, nil}, {nil, is}} {
		e.cfg.Leavings = leavings{pods: &looks}
		e.wantOrphans()
	}
	e.cfg.Leavings = leavings{pods: &[]map[string]bool{nil, nil}}
	list := e.wantOrphans("ephemeral e kept")
	if len(list) != 1 || !strings.Contains(list[0].Why, "pod shop/web-0") || !strings.Contains(list[0].Why, "zfs destroy "+parent+"/e") {
		t.Errorf("%+v", list)
	}
}

// What a node has of volumes that are gone is shown; to remove it is its own
// service's business.
func TestLeavingsOfANodeAreShown(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.ISCSI))
	d, err := e.Pool.Get(t.Context(), parent+"/v")
	must(t, err)
	uuid, _ := d.Own("tarn:uuid")
	e.cfg.Leavings = leavings{
		sessions: map[string]string{"iqn.live": uuid, "iqn.gone": strayUUID},
		staged:   map[string]string{"/staging/live": v.ID, "/staging/gone": "tank/gone", "/staging/other": "elsewhere/gone"},
	}
	list := e.wantOrphans("session iqn.gone kept", "stage /staging/gone kept")
	if len(volume.Removable(list)) > 0 {
		t.Errorf("to be removed: %+v", list)
	}
}
