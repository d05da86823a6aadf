package volume_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/manifest"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
)

// All that an orchestrator knew comes back from the pool, beside the process that
// serves it.
func TestLastingIsWhatCreateAnswered(t *testing.T) {
	e := newEnv(t)
	nfs := with(with(ownedBy("data", "shop", "pvc-1"), "mountOptions", "noatime"), "zfs.compression", "lz4")
	nfs.Capabilities = []access.Capability{mounted(access.MultiNodeMultiWriter), mounted(access.SingleNodeWriter)}
	disk := request("odd Name", volume.ISCSI)
	disk.Capabilities = []access.Capability{{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "xfs", MountFlags: []string{"sentinel"}}}
	made := []volume.Volume{e.create(nfs), e.create(disk)}
	s := e.snapshot("s", made[0].ID)
	restored := with(request("w", volume.NFS), "cloneMode", "linked")
	restored.Source = volume.Source{SnapshotID: s.ID}
	made = append(made, e.create(restored))
	e.publish(volume.PublishRequest{VolumeID: made[0].ID, NodeID: nodeA, Capability: mounted(access.MultiNodeMultiWriter)})
	commands := 0
	e.Pool.Observe(func(zfsfake.Call) { commands++ })
	list, left, err := e.look().Lasting(t.Context())
	must(t, err)
	if len(left) > 0 || commands != 3 || len(list) != 3 {
		t.Fatalf("%d commands, %+v, left out %+v", commands, list, left)
	}
	made[0].Nodes = []string{nodeA}
	slices.SortFunc(made, func(a, b volume.Volume) int { return strings.Compare(a.ID, b.ID) })
	for i, v := range list {
		if diff := cmp.Diff(made[i], v.Volume); diff != "" {
			t.Errorf("it differs (-created +listed)\n%s", diff)
		}
		if own := e.own(strings.TrimPrefix(v.ID, "tank/"), "tarn:uuid"); v.UUID != own["tarn:uuid"] {
			t.Errorf("%s has uuid %s", v.ID, v.UUID)
		}
	}
	at := func(id string) volume.Lasting {
		return list[slices.IndexFunc(list, func(v volume.Lasting) bool { return v.ID == id })]
	}
	if v := at("tank/v"); v.Protocol != volume.NFS || v.Owner.String() != "shop/data" || v.Owner.Volume != "pvc-1" || len(v.Capabilities) != 2 {
		t.Errorf("%+v", v)
	}
	want := []access.Capability{{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "xfs"}}
	if v := list[0]; v.Name != "odd Name" || !cmp.Equal(v.Capabilities, want) {
		t.Errorf("%+v", v)
	}
	objects, told := manifest.PersistentVolumes(driver, list, manifest.Classes{volume.NFS: "tarn-nfs"})
	var out bytes.Buffer
	must(t, manifest.Write(&out, objects))
	for _, part := range []string{"name: pvc-1\n", "name: tarn-" + list[0].UUID + "\n", "volumeHandle: tank/w\n", "fsType: xfs\n", "mountOptions: noatime\n", "storage: 1Gi\n"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, out.String())
		}
	}
	if len(told) > 0 || strings.Contains(out.String(), "sentinel") {
		t.Errorf("told %q and wrote\n%s", told, out.String())
	}
}

// What is deleted, unfinished or damaged is named, with the reason; what others
// made is not this driver's to tell.
func TestLastingLeavesOutWhatIsNoVolume(t *testing.T) {
	e := newEnv(t)
	gone := e.create(request("gone", volume.NFS))
	e.snapshot("s", gone.ID)
	must(t, e.Delete(t.Context(), gone.ID))
	source := e.create(request("source", volume.ISCSI))
	e.snapshot("s2", source.ID)
	must(t, e.Pool.Make(parent+"/.incoming"))
	must(t, e.Pool.MakePartial(parent+"/source@s2", zfs.Spec{Name: parent + "/.incoming/w", VolumeBytes: gib, Thin: true,
		Properties: []zfs.Setting{{Name: "tarn:name", Value: `"w"`}}}))
	for name, set := range map[string][2]string{
		"b1": {"tarn:request", "{"},
		"b2": {"tarn:request", `{"parameters":{"protocol":"nfs"},"capabilities":["mount/SOMETIMES"]}`},
		"b3": {"tarn:request", `{"parameters":{"protocol":"nfs"}}`},
		"b4": {"tarn:name", "no JSON"},
		"b5": {"refquota", "0"},
		"b6": {"tarn:uuid", "x"},
	} {
		e.create(request(name, volume.NFS))
		must(t, e.Pool.Put(parent+"/"+name, set[0], set[1]))
	}
	must(t, e.Pool.Make(parent+"/somebodys"))
	before := e.Pool.Names()
	list, left, err := e.look().Lasting(t.Context())
	must(t, err)
	if len(list) != 1 || list[0].ID != source.ID {
		t.Errorf("%+v", list)
	}
	var got []string
	for _, l := range left {
		name := strings.TrimPrefix(l.Dataset, parent+"/")
		if at := strings.Index(name, "gone"); at > 0 {
			name = ".tombstones/gone"
		}
		got = append(got, name)
		if len(l.Why) < 20 {
			t.Errorf("%s: %q", l.Dataset, l.Why)
		}
	}
	if diff := cmp.Diff([]string{".incoming/.copy.w", ".tombstones/gone", "b1", "b2", "b3", "b4", "b5", "b6"}, got); diff != "" {
		t.Errorf("it differs (-want +got)\n%s", diff)
	}
	if !slices.Equal(before, e.Pool.Names()) {
		t.Error("the pool is another now")
	}
	e.Pool.SetState("FAULTED")
	_, _, err = e.look().Lasting(t.Context())
	wantKind(t, err, fault.Unavailable)
}
