package zfs_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// snap takes snapshots that must succeed.
func (w *world) snap(names ...string) {
	w.Helper()
	for i, name := range names {
		names[i] = w.at(name)
	}
	w.must(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: names}))
}

var snapshotRules = []rule{
	{"snapshots of several datasets are of one instant, with all properties", func(w *world) {
		fs, z := w.fs("v", "tarn:name=x", "refquota=104857600"), w.zvol("z", 16<<20)
		w.works(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{fs + "@s", z + "@s"}, Properties: settings("tarn:name=s 1", "tarn:empty=")}))
		a, b := w.get(fs+"@s"), w.get(z+"@s")
		for _, d := range []zfs.Dataset{a, b} {
			equal(w, "is a snapshot", d.Snapshot(), true)
			name, _ := d.Local("tarn:name")
			equal(w, "tarn:name", name, "s 1")
			empty, ok := d.Local("tarn:empty")
			equal(w, "tarn:empty", empty, "")
			equal(w, "tarn:empty is local", ok, true)
			equal(w, "created", d.Bytes("creation") > 0, true)
			deferred, _ := d.Value("defer_destroy")
			equal(w, "defer_destroy", deferred, "off")
			equal(w, "clones", len(d.Clones()), 0)
		}
		equal(w, "createtxg", a.Bytes("createtxg"), b.Bytes("createtxg"))
		equal(w, "volsize", b.Bytes("volsize"), 16<<20)
		equal(w, "types", string(a.Type()+" "+b.Type()), "filesystem volume")
		_, ok := a.Value("refquota")
		equal(w, "a snapshot has a refquota", ok, false)
	}},
	{"one snapshot that exists keeps all from being taken", func(w *world) {
		w.fs("v")
		w.fs("w")
		w.snap("w@s")
		w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("w@s")}}), zfs.ErrExists)
		w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s"), w.at("w@s")}}), zfs.ErrExists)
		w.gone(w.at("v@s"))
	}},
	{"one dataset that is missing keeps all from being taken", func(w *world) {
		w.fs("v")
		for _, missing := range []string{w.at("none@s"), w.at("none/v@s"), "nopool/v@s"} {
			w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{missing}}), zfs.ErrNotExist)
			w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s"), missing}}), zfs.ErrNotExist)
			w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{missing, w.at("v@s")}}), zfs.ErrNotExist)
		}
		w.gone(w.at("v@s"))
	}},
	{"snapshots that are refused", func(w *world) {
		w.fs("v")
		for _, name := range []string{"a%b", "a/b", "a,b", "a@b", "", strings.Repeat("n", 256-len(w.at("v@")))} {
			w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@" + name)}}), zfs.ErrBadValue)
		}
		for _, bad := range []string{"compression=lz4", "nosuch=1", "Tarn:x=1", "tarn:x=2", "tarn:long=" + strings.Repeat("v", 8192)} {
			w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s")}, Properties: settings("tarn:x=1", bad)}), zfs.ErrBadValue)
		}
		w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s"), w.at("v@t")}}), zfs.ErrBadValue)
		list, err := w.Snapshots(w.Context(), w.parent)
		w.works(err)
		equal(w, "snapshots", len(list), 0)
		w.works(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s"), w.at("v@s")}}))
		w.works(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@" + strings.Repeat("n", 255-len(w.at("v@"))))}, Properties: settings("tarn:x=" + strings.Repeat("v", 8191))}))
	}},
	{"a snapshot of what is reserved needs its space once more", func(w *world) {
		z := w.at("z")
		// The quota comes last: near it the kernel makes writers wait.
		w.must(w.Create(w.Context(), zfs.Spec{Name: z, VolumeBytes: 20 << 20}), w.admin.Write(z, 19<<20), w.admin.Put(w.parent, "quota", strconv.Itoa(30<<20)))
		w.fs("v")
		w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s"), z + "@s"}}), zfs.ErrNoSpace)
		w.gone(w.at("v@s"))
	}},
	{"snapshots are listed at any depth, with what is their own", func(w *world) {
		w.must(w.admin.Put(w.parent, "tarn:driver", "x"))
		w.fs("v", "tarn:name=v")
		w.must(w.admin.Make(w.at("deep/er"), settings("mountpoint=none")...))
		w.zvol("deep/er/z", 16<<20, "tarn:name=z")
		names := []string{w.at("v@s"), w.at("deep/er/z@s")}
		w.must(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: names, Properties: settings("tarn:name=s")}))
		w.must(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.parent + "@own"}, Properties: settings("tarn:name=s")}))
		w.must(w.admin.TakeSnapshot(w.at("v@backup")), w.admin.TakeSnapshot(w.at("deep/er/z@backup")))
		list, err := w.Snapshots(w.Context(), w.parent)
		w.works(err)
		var got []string
		for _, d := range list {
			name, _ := d.Own("tarn:name")
			_, inherited := d.Value("tarn:driver")
			equal(w, "an inherited value is listed", inherited, false)
			got = append(got, strings.TrimPrefix(d.Name, w.parent)+"="+name)
		}
		slices.Sort(got)
		equal(w, "snapshots", strings.Join(got, " "), "/deep/er/z@backup= /deep/er/z@s=s /v@s=s")
		i := slices.IndexFunc(list, func(d zfs.Dataset) bool { return d.Name == names[1] })
		equal(w, "volsize", list[i].Bytes("volsize"), 16<<20)
		_, err = w.Snapshots(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNoParent)
		_, err = w.Snapshots(w.Context(), "nopool/v")
		w.fails(err, zfs.ErrNoParent)
	}},
	{"a snapshot shows its dataset's user properties, which are not its own", func(w *world) {
		w.fs("v", "tarn:name=v")
		w.snap("v@s")
		d := w.get(w.at("v@s"))
		name, ok := d.Value("tarn:name")
		equal(w, "seen", ok, true)
		equal(w, "tarn:name", name, "v")
		_, ok = d.Own("tarn:name")
		equal(w, "own", ok, false)
		equal(w, "unmarked", d.Unmarked(), true)
		list, err := w.Snapshots(w.Context(), w.parent)
		w.works(err)
		equal(w, "listed", len(list), 0)
	}},
	{"properties of a snapshot", func(w *world) {
		z := w.zvol("z", 16<<20)
		w.snap("z@s")
		w.works(w.SetAll(w.Context(), z+"@s", settings("tarn:a=1", "tarn:b=2")))
		w.works(w.Set(w.Context(), z+"@s", zfs.Setting{Name: "tarn:a", Value: "3"}))
		w.fails(w.SetAll(w.Context(), z+"@s", settings("tarn:a=4", "compression=lz4")), zfs.ErrBadValue)
		w.fails(w.Set(w.Context(), z+"@s", zfs.Setting{Name: "volsize", Value: "33554432"}), zfs.ErrBadValue)
		a, _ := w.get(z + "@s").Local("tarn:a")
		equal(w, "tarn:a", a, "3")
		w.works(w.Inherit(w.Context(), z+"@s", "tarn:a"))
		_, ok := w.get(z + "@s").Value("tarn:a")
		equal(w, "tarn:a is set", ok, false)
		w.fails(w.Set(w.Context(), z+"@none", zfs.Setting{Name: "tarn:a", Value: "1"}), zfs.ErrNotExist)
	}},
	{"rename of a snapshot", func(w *world) {
		w.fs("v")
		w.fs("w")
		w.snap("v@s")
		w.snap("v@t")
		w.fails(w.Rename(w.Context(), w.at("v@s"), w.at("v@t")), zfs.ErrExists)
		w.fails(w.Rename(w.Context(), w.at("v@s"), w.at("w@s")), zfs.ErrBadValue)
		w.fails(w.Rename(w.Context(), w.at("v@none"), w.at("v@x")), zfs.ErrNotExist)
		w.works(w.Rename(w.Context(), w.at("v@s"), w.at("v@x")))
		w.get(w.at("v@x"))
	}},
}

// deferred reads whether a snapshot waits for its end.
func (w *world) deferred(snapshot string) string {
	w.Helper()
	v, _ := w.get(snapshot).Value("defer_destroy")
	return v
}

var deferRules = []rule{
	{"what nothing needs is destroyed at once", func(w *world) {
		w.fs("v")
		w.snap("v@s")
		w.works(w.DestroyLater(w.Context(), w.at("v@s")))
		w.gone(w.at("v@s"))
		w.fails(w.DestroyLater(w.Context(), w.at("v@s")), zfs.ErrNotExist)
		w.fails(w.DestroyLater(w.Context(), w.at("none@s")), zfs.ErrNoParent)
		w.fails(w.DestroyLater(w.Context(), "nopool/v@s"), zfs.ErrNoParent)
		w.fails(w.DestroyLater(w.Context(), w.at("v")), zfs.ErrBadValue)
	}},
	{"a snapshot with clones goes with the last one, and holds its name until it is renamed", func(w *world) {
		w.fs("v")
		w.snap("v@s")
		for _, name := range []string{"a", "b"} {
			w.must(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at(name)}))
		}
		for range 2 {
			w.works(w.DestroyLater(w.Context(), w.at("v@s")))
			equal(w, "defer_destroy", w.deferred(w.at("v@s")), "on")
		}
		w.fails(w.Destroy(w.Context(), w.at("v@s")), zfs.ErrDependents)
		w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s")}}), zfs.ErrExists)
		w.works(w.Rename(w.Context(), w.at("v@s"), w.at("v@hidden")))
		equal(w, "defer_destroy after rename", w.deferred(w.at("v@hidden")), "on")
		w.snap("v@s")
		w.works(w.Set(w.Context(), w.at("v@hidden"), zfs.Setting{Name: "tarn:x", Value: "1"}))
		w.works(w.Clone(w.Context(), w.at("v@hidden"), zfs.Spec{Name: w.at("c")}))
		clones := w.get(w.at("v@hidden")).Clones()
		slices.Sort(clones)
		equal(w, "clones", strings.Join(clones, ","), w.at("a")+","+w.at("b")+","+w.at("c"))
		for _, name := range []string{"a", "b", "c"} {
			w.get(w.at("v@hidden"))
			w.works(w.Destroy(w.Context(), w.at(name)))
		}
		w.gone(w.at("v@hidden"))
		equal(w, "defer_destroy of the other", w.deferred(w.at("v@s")), "off")
	}},
	{"a held snapshot goes with its hold", func(w *world) {
		w.fs("v")
		w.snap("v@s")
		release, err := w.admin.HoldSnapshot(w.at("v@s"))
		w.must(err)
		w.fails(w.Destroy(w.Context(), w.at("v@s")), zfs.ErrBusy)
		w.works(w.DestroyLater(w.Context(), w.at("v@s")))
		equal(w, "userrefs", w.get(w.at("v@s")).Bytes("userrefs"), 1)
		release()
		w.gone(w.at("v@s"))
	}},
	{"a name is one snapshot, not a list or a range of them", func(w *world) {
		w.fs("v")
		w.snap("v@a")
		w.snap("v@b")
		for _, several := range []string{"a,b", "a%b", "%", "%b", "a%", ""} {
			w.fails(w.Destroy(w.Context(), w.at("v@"+several)), zfs.ErrNotExist)
			w.fails(w.DestroyLater(w.Context(), w.at("v@"+several)), zfs.ErrNotExist)
		}
		w.get(w.at("v@a"))
		w.get(w.at("v@b"))
	}},
}
