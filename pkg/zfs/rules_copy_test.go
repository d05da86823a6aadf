package zfs_test

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// sources makes a filesystem and a zvol with a MiB in each, and snapshots of them.
func (w *world) sources() {
	w.Helper()
	w.must(w.admin.Make(w.at("v"), settings("tarn:name=v", "refquota=104857600")...), w.admin.Write(w.at("v"), 1<<20))
	w.must(w.Create(w.Context(), zfs.Spec{Name: w.at("z"), VolumeBytes: 16 << 20, Properties: settings("volblocksize=16384")}))
	w.must(w.admin.Write(w.at("z"), 1<<20))
	w.must(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@s"), w.at("z@s")}, Properties: settings("tarn:name=s")}))
}

// whole expects a complete copy, and nothing beside it.
func (w *world) whole(name, snapshot string) zfs.Dataset {
	w.Helper()
	d := w.get(name)
	_, half := d.Value("receive_resume_token")
	equal(w, "has a token", half, false)
	_, clone := d.Value("origin")
	equal(w, "has an origin", clone, false)
	_, s, _ := strings.Cut(snapshot, "@")
	copied, original := w.get(name+"@"+s), w.get(snapshot)
	equal(w, "guid", w.value(copied, "guid"), w.value(original, "guid"))
	w.gone(zfs.PartialName(name))
	w.empty(d, false)
	return d
}

func (w *world) value(d zfs.Dataset, property string) string {
	v, _ := d.Value(property)
	return v
}

var copyRules = []rule{
	{"a copy of a filesystem has all its properties, and depends on nothing", func(w *world) {
		w.sources()
		w.works(w.Copy(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), Properties: settings(
			"tarn:name=c", "tarn:empty=", "refquota=52428800", "refreservation=52428800", "compression=lz4", "setuid=off")}))
		d := w.whole(w.at("c"), w.at("v@s"))
		for property, want := range map[string]string{"tarn:name": "c", "tarn:empty": "", "compression": "lz4", "setuid": "off"} {
			got, ok := d.Local(property)
			equal(w, property+" is local", ok, true)
			equal(w, property, got, want)
		}
		equal(w, "refquota", d.Bytes("refquota"), 50<<20)
		equal(w, "refreservation", d.Bytes("refreservation"), 50<<20)
		w.unmounted(d.Name)
		_, own := w.get(w.at("c@s")).Own("tarn:name")
		equal(w, "the copied snapshot has a name", own, false)
		w.works(w.Destroy(w.Context(), w.at("v@s")))
		w.works(w.Destroy(w.Context(), w.at("v")))
		w.works(w.Destroy(w.Context(), w.at("c@s")))
		w.works(w.Mount(w.Context(), w.at("c"), filepath.Join(w.dir, "c"), true))
	}},
	{"a copy of a zvol has the size that it is given", func(w *world) {
		w.sources()
		for _, c := range []struct {
			name     string
			bytes    int64
			thin     bool
			reserved int64
		}{{"same", 16 << 20, true, 0}, {"grown", 32 << 20, true, 0}, {"thick", 16 << 20, false, 18874368}, {"thick-grown", 32 << 20, false, 36175872}} {
			w.works(w.Copy(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at(c.name), VolumeBytes: c.bytes, Thin: c.thin, Properties: settings("tarn:name=c", "volmode=dev")}))
			d := w.whole(w.at(c.name), w.at("z@s"))
			equal(w, c.name+" type", d.Type(), zfs.Volume)
			equal(w, c.name+" volsize", d.Bytes("volsize"), c.bytes)
			equal(w, c.name+" volblocksize", d.Bytes("volblocksize"), 16<<10)
			equal(w, c.name+" refreservation", d.Bytes("refreservation"), c.reserved)
			volmode, _ := d.Local("volmode")
			equal(w, c.name+" volmode", volmode, "dev")
		}
	}},
	{"what is partial does not have the name, and says that it is partial", func(w *world) {
		w.sources()
		fs, z := zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=c")}, zfs.Spec{Name: w.at("d"), VolumeBytes: 16 << 20, Thin: true, Properties: settings("tarn:name=d")}
		w.must(w.admin.MakePartial(w.at("v@s"), fs), w.admin.MakePartial(w.at("z@s"), z))
		for _, name := range []string{fs.Name, z.Name} {
			w.gone(name)
			part := zfs.PartialName(name)
			d := w.get(part)
			_, half := d.Value("receive_resume_token")
			equal(w, "has a token", half, true)
			own, _ := d.Own("tarn:name") // as if it were whole
			equal(w, "tarn:name", "/"+own, strings.TrimPrefix(name, w.parent))
			w.fails(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{part + "@x"}}), zfs.ErrBusy)
			w.gone(part + "@s")
		}
		equal(w, "types", string(w.get(zfs.PartialName(fs.Name)).Type()+" "+w.get(zfs.PartialName(z.Name)).Type()), "filesystem volume")
		equal(w, "volsize", w.get(zfs.PartialName(z.Name)).Bytes("volsize"), 0)
		w.fails(w.Set(w.Context(), zfs.PartialName(z.Name), zfs.Setting{Name: "volsize", Value: "33554432"}), zfs.ErrBusy)
	}},
	{"a copy that was cut off goes on", func(w *world) {
		w.sources()
		fs, z := zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=c", "refquota=52428800")}, zfs.Spec{Name: w.at("d"), VolumeBytes: 32 << 20, Properties: settings("tarn:name=d")}
		w.must(w.admin.MakePartial(w.at("v@s"), fs), w.admin.MakePartial(w.at("z@s"), z))
		created := map[string]string{fs.Name: w.value(w.get(zfs.PartialName(fs.Name)), "guid"), z.Name: w.value(w.get(zfs.PartialName(z.Name)), "guid")}
		w.works(w.Copy(w.Context(), w.at("v@s"), fs))
		w.works(w.Copy(w.Context(), w.at("z@s"), z))
		equal(w, "refquota", w.whole(fs.Name, w.at("v@s")).Bytes("refquota"), 50<<20)
		d := w.whole(z.Name, w.at("z@s"))
		equal(w, "volsize", d.Bytes("volsize"), 32<<20)
		equal(w, "refreservation", d.Bytes("refreservation"), 36175872)
		for name, guid := range created {
			equal(w, "the dataset is the same", w.value(w.get(name), "guid"), guid)
		}
	}},
	{"a partial copy of something else, or with other properties, is begun anew", func(w *world) {
		w.sources()
		w.must(w.admin.Write(w.at("v"), 1<<20), w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@t")}}))
		spec := zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=c")}
		w.must(w.admin.MakePartial(w.at("v@s"), spec))
		w.works(w.Copy(w.Context(), w.at("v@t"), spec))
		w.whole(spec.Name, w.at("v@t"))
		_, err := w.Get(w.Context(), spec.Name+"@s")
		w.fails(err, zfs.ErrNotExist)

		spec.Name = w.at("d")
		w.must(w.admin.MakePartial(w.at("v@s"), zfs.Spec{Name: spec.Name, Properties: settings("tarn:name=c", "compression=lz4")}))
		w.works(w.Copy(w.Context(), w.at("v@s"), spec))
		_, set := w.whole(spec.Name, w.at("v@s")).Own("compression")
		equal(w, "compression is set", set, false)
	}},
	{"a copy that has all data and not all properties is finished, and one of another snapshot is not", func(w *world) {
		w.sources()
		huge := strconv.FormatInt(w.poolBytes, 10)
		spec := zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=c", "refreservation="+huge)}
		w.fails(w.Copy(w.Context(), w.at("v@s"), spec), zfs.ErrNoSpace)
		w.gone(spec.Name)
		w.get(zfs.PartialName(spec.Name) + "@s")
		spec.Properties = settings("tarn:name=c", "refreservation=1048576")
		w.works(w.Copy(w.Context(), w.at("v@s"), spec))
		equal(w, "refreservation", w.whole(spec.Name, w.at("v@s")).Bytes("refreservation"), 1<<20)

		spec = zfs.Spec{Name: w.at("d"), Properties: settings("tarn:name=d", "refquota=10")}
		w.fails(w.Copy(w.Context(), w.at("v@s"), spec), zfs.ErrBadValue)
		w.must(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("v@t")}}))
		spec.Properties = settings("tarn:name=d")
		w.works(w.Copy(w.Context(), w.at("v@t"), spec))
		w.whole(spec.Name, w.at("v@t"))
	}},
	{"copies that cannot be", func(w *world) {
		w.sources()
		fs := func(name string, properties ...string) zfs.Spec {
			return zfs.Spec{Name: w.at(name), Properties: settings(properties...)}
		}
		w.fails(w.Copy(w.Context(), w.at("v@s"), fs("v")), zfs.ErrExists)
		w.fails(w.Copy(w.Context(), w.at("v@none"), fs("c")), zfs.ErrNotExist)
		w.fails(w.Copy(w.Context(), w.at("none@s"), fs("c")), zfs.ErrNotExist)
		w.fails(w.Copy(w.Context(), w.at("v"), fs("c")), zfs.ErrBadValue)
		w.fails(w.Copy(w.Context(), w.at("z@s"), fs("c")), zfs.ErrBadValue)
		w.fails(w.Copy(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: 16 << 20, Thin: true}), zfs.ErrBadValue)
		w.fails(w.Copy(w.Context(), w.at("v@s"), fs("none/c")), zfs.ErrNoParent)
		w.fails(w.Copy(w.Context(), w.at("v@s"), zfs.Spec{Name: "nopool/c"}), zfs.ErrNoParent)
		w.fails(w.Copy(w.Context(), w.at("v@s"), fs("z/c")), nil)
		w.fails(w.Copy(w.Context(), w.at("v@s"), fs("a%b")), nil)
		for _, bad := range []string{"compression=fast", "recordsize=3000", "nosuch=1", "Tarn:x=1", "tarn:x=2", "volsize=1048576", "refquota=lots"} {
			w.fails(w.Copy(w.Context(), w.at("v@s"), fs("c", "tarn:x=1", bad)), zfs.ErrBadValue)
		}
		for _, bad := range []string{"volblocksize=16384", "refquota=1048576", "volsize=16777216"} {
			w.fails(w.Copy(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: 16 << 20, Thin: true, Properties: settings(bad)}), zfs.ErrBadValue)
		}
		w.gone(w.at("c"))
		w.gone(zfs.PartialName(w.at("c")))
	}},
	{"a copy without room leaves what has come, which can be dropped", func(w *world) {
		w.sources()
		w.must(w.admin.Make(w.at("small"), settings("quota=524288")...))
		spec := zfs.Spec{Name: w.at("small/c"), Properties: settings("tarn:name=c")}
		w.fails(w.Copy(w.Context(), w.at("v@s"), spec), zfs.ErrNoSpace)
		w.gone(spec.Name)
		w.fails(w.Copy(w.Context(), w.at("v@s"), spec), zfs.ErrNoSpace)
		w.works(w.DropCopy(w.Context(), spec.Name))
		w.gone(zfs.PartialName(spec.Name))
		w.fails(w.DropCopy(w.Context(), spec.Name), zfs.ErrNotExist)
		w.must(w.admin.Put(w.at("small"), "quota", "none"))
		w.works(w.Copy(w.Context(), w.at("v@s"), spec))
		w.whole(spec.Name, w.at("v@s"))
	}},
	{"a copy goes on when there is more room", func(w *world) {
		w.sources()
		w.must(w.admin.Make(w.at("small"), settings("quota=524288")...))
		spec := zfs.Spec{Name: w.at("small/c"), Properties: settings("tarn:name=c")}
		w.fails(w.Copy(w.Context(), w.at("v@s"), spec), zfs.ErrNoSpace)
		w.must(w.admin.Put(w.at("small"), "quota", "none"))
		w.works(w.Copy(w.Context(), w.at("v@s"), spec))
		w.whole(spec.Name, w.at("v@s"))
	}},
	{"what is dropped may have all data", func(w *world) {
		w.sources()
		spec := zfs.Spec{Name: w.at("d"), VolumeBytes: w.poolBytes, Properties: settings("tarn:name=d")}
		w.fails(w.Copy(w.Context(), w.at("z@s"), spec), zfs.ErrNoSpace)
		w.get(zfs.PartialName(spec.Name) + "@s")
		w.works(w.DropCopy(w.Context(), spec.Name))
		w.gone(zfs.PartialName(spec.Name))
	}},
	{"a clone can be copied, and its copy has no origin", func(w *world) {
		w.sources()
		w.must(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c")}), w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{w.at("c@t")}}))
		w.works(w.Copy(w.Context(), w.at("c@t"), zfs.Spec{Name: w.at("d")}))
		w.whole(w.at("d"), w.at("c@t"))
	}},
}
