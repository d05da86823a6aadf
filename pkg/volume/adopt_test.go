package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// home makes a filesystem with a file, unmounted, as its owner left it.
func (e *env) home(name string, properties ...zfs.Setting) {
	e.t.Helper()
	must(e.t, e.Pool.Make(name, properties...))
	must(e.t, os.WriteFile(filepath.Join(e.Pool.Content(name), "file"), []byte("kept"), 0o600))
	must(e.t, e.Pool.UnmountByHand(name))
}

// disk makes a zvol with a filesystem and data.
func (e *env) disk(name, fsType string) {
	e.t.Helper()
	must(e.t, e.ZFS().Create(e.t.Context(), zfs.Spec{Name: name, VolumeBytes: 64 << 20, Thin: true,
		Properties: []zfs.Setting{{Name: "volblocksize", Value: "8192"}}}))
	if fsType != "" {
		d := e.Disk("/dev/zvol/" + name)
		d.Format(fsType)
		d.Write([]byte("kept"))
		must(e.t, e.Pool.Write(name, 1<<20))
	}
}

// An adopted volume is one like any other, from the first moment on and for the
// daemon that runs: its data is there, and every call works.
func TestAdoptedVolumeIsOneLikeAnyOther(t *testing.T) {
	for _, at := range []string{"tank/home/old", parent + "/old", parent + "/new"} {
		for _, protocol := range []string{volume.NFS, volume.ISCSI} {
			e := newEnv(t)
			if strings.HasPrefix(at, "tank/home/") {
				must(t, e.Pool.Make("tank/home", zfs.Setting{Name: "sharenfs", Value: "on"}))
			}
			if protocol == volume.NFS {
				e.home(at, zfs.Setting{Name: "refquota", Value: "67108864"})
			} else {
				e.disk(at, "ext4")
			}
			v, err := e.look().Adopt(t.Context(), volume.AdoptRequest{Dataset: at, Protocol: protocol, Name: "new"})
			must(t, err)
			if v.ID != "tank/new" || v.CapacityBytes != 64<<20 || v.Context["protocol"] != protocol {
				t.Errorf("%+v", v)
			}
			e.publish(to(v, nodeA)) // the daemon has listed nothing since
			if protocol == volume.NFS {
				if b, err := os.ReadFile(filepath.Join(e.Dir(parent+"/new"), "file")); err != nil || string(b) != "kept" {
					t.Errorf("%q, %v", b, err)
				}
				d, err := e.Pool.Get(t.Context(), parent+"/new")
				must(t, err)
				for property, want := range map[string]string{"setuid": "off", "devices": "off", "sharenfs": "off", "canmount": "on"} {
					if have, _ := d.Value(property); have != want {
						t.Errorf("%s is %q", property, have)
					}
				}
			} else if d := e.Disk("/dev/zvol/" + parent + "/new"); d.FSType() != "ext4" || string(d.Data()) != "kept" {
				t.Errorf("it holds %s %q", d.FSType(), d.Data())
			}
			e.wantHealth(v.ID)
			must(t, e.Reconcile(t.Context()))
			e.wantOrphans()
			e.snapshot("s", v.ID)
			bytes, _, err := e.Expand(t.Context(), volume.ExpandRequest{VolumeID: v.ID, Size: volume.Range{RequiredBytes: 128 << 20}})
			must(t, err)
			if bytes != 128<<20 {
				t.Errorf("%d bytes", bytes)
			}
			_, err = e.look().Adopt(t.Context(), volume.AdoptRequest{Dataset: parent + "/new", Protocol: protocol})
			wantKind(t, err, fault.Exists, "a volume already")
			must(t, e.Unpublish(t.Context(), v.ID, nodeA))
			must(t, e.DeleteSnapshot(t.Context(), v.ID+"@s"))
			must(t, e.Delete(t.Context(), v.ID))
			e.wantDatasets()
		}
	}
}

// What the orchestrator would ask for the same volume is compared with what it
// is: the same name is not made twice.
func TestAdoptedVolumeTakesItsName(t *testing.T) {
	e := newEnv(t)
	e.disk("tank/v", "ext3")
	v, err := e.look().Adopt(t.Context(), volume.AdoptRequest{Dataset: "tank/v", Protocol: volume.ISCSI, FSType: "ext3"})
	must(t, err)
	if v.ID != "tank/v" || v.Context["fsType"] != "ext3" {
		t.Errorf("%+v", v)
	}
	_, err = e.Create(t.Context(), request("v", volume.ISCSI))
	wantKind(t, err, fault.Exists, "another request")
	r := with(with(request("v", volume.ISCSI), "fsType", "ext3"), "zfs.volblocksize", "8K")
	r.Size = volume.Range{RequiredBytes: 64 << 20}
	if again := e.create(r); again.ID != v.ID {
		t.Errorf("%+v", again)
	}
	_, err = e.look().Adopt(t.Context(), volume.AdoptRequest{Dataset: "tank/none", Protocol: volume.ISCSI})
	wantKind(t, err, fault.NotFound)
}

// What cannot be a volume as it is stays what it is, to the last property.
func TestAdoptRefuses(t *testing.T) {
	nfs := func(dataset string) volume.AdoptRequest {
		return volume.AdoptRequest{Dataset: dataset, Protocol: volume.NFS}
	}
	iscsi := func(dataset string) volume.AdoptRequest {
		return volume.AdoptRequest{Dataset: dataset, Protocol: volume.ISCSI}
	}
	sized := func(r volume.AdoptRequest, bytes int64) volume.AdoptRequest { r.SizeBytes = bytes; return r }
	typed := func(r volume.AdoptRequest, fsType string) volume.AdoptRequest { r.FSType = fsType; return r }
	named := func(r volume.AdoptRequest, name string) volume.AdoptRequest { r.Name = name; return r }
	for name, c := range map[string]struct {
		prepare func(e *env)
		request volume.AdoptRequest
		kind    error
		words   string
	}{
		"mounted":   {func(e *env) { must(t, e.Pool.Make("tank/m")) }, nfs("tank/m"), fault.Precondition, "zfs unmount"},
		"exported":  {func(e *env) { must(t, e.Pool.Make("tank/m")); must(t, e.ForeignExport(e.Dir("tank/m"), "192.0.2.99")) }, nfs("tank/m"), fault.Precondition, "192.0.2.99:"},
		"children":  {func(e *env) { e.home("tank/m"); must(t, e.Pool.Bare("tank/m/z", 1<<20)) }, nfs("tank/m"), fault.Precondition, "tank/m/z"},
		"taken":     {func(e *env) { e.home("tank/m"); e.create(request("m", volume.NFS)) }, nfs("tank/m"), fault.Exists, "--name"},
		"locked":    {func(e *env) { e.home("tank/m"); must(t, e.Pool.Encrypt("tank/m")); must(t, e.Pool.LockKey("tank/m")) }, nfs("tank/m"), fault.Precondition, "load-key"},
		"read-only": {func(e *env) { e.home("tank/m", zfs.Setting{Name: "readonly", Value: "on"}) }, nfs("tank/m"), fault.Precondition, "readonly=off"},
		"small":     {func(e *env) { e.home("tank/m"); must(t, e.Pool.Write("tank/m", 5<<20)) }, sized(nfs("tank/m"), 4<<20), fault.Range, "--size"},
		"tiny":      {func(e *env) { e.home("tank/m") }, sized(nfs("tank/m"), 1<<19), fault.Range, "1048576"},
		"wrong one": {func(e *env) { e.home("tank/m") }, iscsi("tank/m"), fault.Precondition, "filesystem"},
		"zvol":      {func(e *env) { e.disk("tank/m", "ext4") }, nfs("tank/m"), fault.Precondition, "volume"},
		"blank":     {func(e *env) { e.disk("tank/m", "") }, iscsi("tank/m"), fault.Precondition, "--block"},
		"btrfs":     {func(e *env) { e.disk("tank/m", "btrfs") }, iscsi("tank/m"), fault.Precondition, "--block"},
		"other fs":  {func(e *env) { e.disk("tank/m", "ext4") }, typed(iscsi("tank/m"), "xfs"), fault.Precondition, "ext4"},
		"resized":   {func(e *env) { e.disk("tank/m", "ext4") }, sized(iscsi("tank/m"), 1<<30), fault.Invalid, "expand"},
		"no device": {func(e *env) { must(t, e.Pool.Bare("tank/m", 1<<20)) }, iscsi("tank/m"), fault.Precondition, "volmode"},
		"parent":    {func(*env) {}, nfs(parent), fault.Precondition, "parent"},
		"above":     {func(*env) {}, nfs("tank"), fault.Invalid, "filesystem or zvol"},
		"no pool":   {func(*env) {}, nfs("other/m"), fault.Precondition, "zfs send"},
		"hidden":    {func(e *env) { must(t, e.Pool.Make(parent+"/.tombstones/m")) }, nfs(parent + "/.tombstones/m"), fault.Precondition, "driver"},
		"snapshot":  {func(*env) {}, nfs("tank/m@s"), fault.Invalid, "filesystem or zvol"},
		"protocol":  {func(*env) {}, volume.AdoptRequest{Dataset: "tank/m", Protocol: "smb"}, fault.Invalid, "iscsi, nfs"},
		"volume":    {func(e *env) { e.create(request("m", volume.NFS)) }, named(nfs(parent+"/m"), "n"), fault.Exists, "already"},
		"in use": {func(e *env) {
			e.publish(to(e.create(request("m", volume.ISCSI)), nodeA))
			for _, p := range []string{"tarn:name", "tarn:uuid"} {
				must(t, e.Pool.Inherit(t.Context(), parent+"/m", p))
			}
		}, iscsi(parent + "/m"), fault.Precondition, "backstore"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			c.prepare(e)
			before := e.marked("tank/m")
			names := e.Pool.Names()
			_, err := e.look().Adopt(t.Context(), c.request)
			wantKind(t, err, c.kind, c.words)
			if !slices.Equal(before, e.marked("tank/m")) || !slices.Equal(names, e.Pool.Names()) {
				t.Errorf("it was %q and is %q", before, e.marked("tank/m"))
			}
		})
	}
}

// marked is what is set on a dataset itself; nil where it does not exist.
func (e *env) marked(name string) []string {
	d, err := e.Pool.Get(e.t.Context(), name)
	if err != nil {
		return nil
	}
	list := []string{}
	for _, property := range d.OwnNames("") {
		value, _ := d.Own(property)
		list = append(list, property+"="+value)
	}
	slices.Sort(list)
	return list
}

// Cut off before any step, the dataset is what it was or a whole volume, and the
// next call makes it one. Refused at any step, it is as it was.
func TestAdoptCutOffAnywhere(t *testing.T) {
	for _, at := range []string{"tank/old", parent + "/v"} {
		for _, protocol := range []string{volume.NFS, volume.ISCSI} {
			for step := 0; ; step++ {
				e := newEnv(t)
				if protocol == volume.NFS {
					e.home(at)
					must(t, e.Pool.Put(at, "mountpoint", "none"))
					must(t, e.Pool.Put(at, "tarn:node.worker-9", "{"))
				} else {
					e.disk(at, "ext4")
				}
				r := volume.AdoptRequest{Dataset: at, Protocol: protocol, Name: "v"}
				e.Pool.CutAfter(step, errors.New("killed"))
				_, err := e.look().Adopt(t.Context(), r)
				e.Pool.Heal()
				if err == nil {
					if step < 2 {
						t.Errorf("%s %s: only %d steps", at, protocol, step)
					}
					break
				}
				list, err := e.look().Inventory(t.Context())
				must(t, err)
				if len(list) > 0 {
					// It is whole, and only the look at it was cut off.
					if list[0].ID != "tank/v" || len(list[0].Conditions) > 0 {
						t.Errorf("%s %s, step %d: half a volume: %+v", at, protocol, step, list)
					}
					e.publish(to(volume.Volume{ID: "tank/v"}, nodeA))
					_, err := e.look().Adopt(t.Context(), r)
					if err == nil || !strings.Contains(err.Error(), "tarn volumes") {
						t.Errorf("%s %s: again: %v", at, protocol, err)
					}
					continue
				}
				if _, err := e.Create(t.Context(), request("v", protocol)); at == parent+"/v" && !errors.Is(err, fault.Exists) {
					t.Errorf("step %d: CreateVolume of its name: %v", step, err)
				} else if err == nil {
					must(t, e.Delete(t.Context(), "tank/v"))
				}
				v, err := e.look().Adopt(t.Context(), r)
				must(t, err)
				e.publish(to(v, nodeA))
				e.wantHealth(v.ID)
			}
		}
	}
}

// Without a refquota a filesystem may go on to grow as it could; a block volume
// is served as it is.
func TestAdoptedSizes(t *testing.T) {
	e := newEnv(t)
	e.home("tank/free")
	v, err := e.look().Adopt(t.Context(), volume.AdoptRequest{Dataset: "tank/free", Protocol: volume.NFS})
	must(t, err)
	d, err := e.Pool.Get(t.Context(), parent+"/free")
	must(t, err)
	if have, _ := d.Own("refquota"); v.CapacityBytes < 60<<30 || have != strconv.FormatInt(v.CapacityBytes, 10) {
		t.Errorf("%+v, refquota %s", v, have)
	}
	e.disk("tank/raw", "")
	v, err = e.look().Adopt(t.Context(), volume.AdoptRequest{Dataset: "tank/raw", Protocol: volume.ISCSI, Block: true})
	must(t, err)
	p := to(v, nodeA)
	p.Capability = asBlock(access.SingleNodeWriter)
	e.publish(p)
}
