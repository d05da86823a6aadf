package zfs_test

import (
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var createRules = []rule{
	{"a filesystem is made unmounted, with all its properties", func(w *world) {
		name := w.fs("v", "refquota=104857600", "tarn:name=a b", "setuid=off", "tarn:empty=")
		d := w.get(name)
		equal(w, "type", d.Type(), zfs.Filesystem)
		equal(w, "refquota", d.Bytes("refquota"), 100<<20)
		for property, want := range map[string]string{"tarn:name": "a b", "setuid": "off", "tarn:empty": ""} {
			got, ok := d.Local(property)
			equal(w, property+" is local", ok, true)
			equal(w, property, got, want)
		}
		_, mounted, err := w.MountedAt(w.Context(), name)
		w.works(err)
		equal(w, "mounted", mounted, false)
	}},
	{"a zvol has its size and block size", func(w *world) {
		d := w.get(w.zvol("v", 16<<20, "volblocksize=16384", "volmode=dev"))
		equal(w, "type", d.Type(), zfs.Volume)
		equal(w, "volsize", d.Bytes("volsize"), 16<<20)
		equal(w, "volblocksize", d.Bytes("volblocksize"), 16<<10)
		equal(w, "refreservation", d.Bytes("refreservation"), 0)
	}},
	{"a zvol's size is rounded up in silence", func(w *world) {
		d := w.get(w.zvol("v", 1000000, "volblocksize=16384"))
		equal(w, "volsize", d.Bytes("volsize"), 62*16384)
	}},
	{"an existing name", func(w *world) {
		w.fs("v")
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v")}), zfs.ErrExists)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), VolumeBytes: 16 << 20, Thin: true}), zfs.ErrExists)
	}},
	{"a parent that is missing", func(w *world) {
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("none/v")}), zfs.ErrNoParent)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("none/v"), VolumeBytes: 16 << 20, Thin: true}), zfs.ErrNoParent)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: "nopool/v"}), zfs.ErrNoParent)
	}},
	{"a parent that is a zvol", func(w *world) {
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.zvol("z", 16<<20) + "/v"}), nil)
	}},
	{"component names that are taken", func(w *world) {
		for _, name := range []string{"-r", ".dot", "A_b-c.d:e", "two words", " blank first", "blank last ", "invalid", "dataset is busy"} {
			w.works(w.Create(w.Context(), zfs.Spec{Name: w.at(name)}))
			equal(w, "name", w.get(w.at(name)).Name, w.at(name))
		}
	}},
	{"component names that are refused", func(w *world) {
		for _, name := range []string{"a%b", "a@b", "a#b", "..", ".", "a//b", "", "ä", "a,b", "a'b", "a\tb"} {
			w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at(name)}), zfs.ErrBadValue)
		}
	}},
	{"names of 255 bytes and no more", func(w *world) {
		name := strings.Repeat("n", 255-len(w.at("")))
		w.works(w.Create(w.Context(), zfs.Spec{Name: w.at(name)}))
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at(name + "n")}), zfs.ErrBadValue)
	}},
	{"a refused value leaves nothing", func(w *world) {
		for _, bad := range []string{
			"compression=fast", "refquota=-1", "refquota=lots", "recordsize=3000", "nosuch=1", "Tarn:x=1",
			"volsize=1048576", "mountpoint=relative", "tarn:long=" + strings.Repeat("v", 8192),
		} {
			w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), Properties: settings("tarn:name=x", bad, "tarn:more=y")}), zfs.ErrBadValue)
			w.gone(w.at("v"))
		}
		for _, bad := range []string{"volblocksize=3000", "recordsize=4096", "refquota=1048576"} {
			w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), VolumeBytes: 16 << 20, Thin: true, Properties: settings("tarn:name=x", bad)}), zfs.ErrBadValue)
			w.gone(w.at("v"))
		}
	}},
	{"a property given twice", func(w *world) {
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), Properties: settings("tarn:x=1", "tarn:x=2")}), zfs.ErrBadValue)
		w.gone(w.at("v"))
	}},
}

var destroyRules = []rule{
	{"destroy", func(w *world) {
		w.works(w.Destroy(w.Context(), w.fs("v")))
		w.gone(w.at("v"))
		w.fails(w.Destroy(w.Context(), w.at("v")), zfs.ErrNotExist)
	}},
	{"destroy of what could be no name", func(w *world) {
		w.fails(w.Destroy(w.Context(), w.at("a%b")), zfs.ErrNotExist)
	}},
	{"destroy of names that say something else", func(w *world) {
		for _, name := range []string{"invalid", "dataset is busy", "must be gone"} {
			w.fails(w.Destroy(w.Context(), w.at(name)), zfs.ErrNotExist)
			w.fs(name)
			w.must(w.admin.TakeSnapshot(w.at(name) + "@s"))
			w.fails(w.Destroy(w.Context(), w.at(name)), zfs.ErrDependents)
		}
	}},
	{"destroy with a child", func(w *world) {
		w.fs("v")
		w.fs("v/child")
		w.fails(w.Destroy(w.Context(), w.at("v")), zfs.ErrDependents)
	}},
	{"destroy with a snapshot", func(w *world) {
		for _, name := range []string{w.fs("v"), w.zvol("z", 16<<20)} {
			w.must(w.admin.TakeSnapshot(name + "@s"))
			w.fails(w.Destroy(w.Context(), name), zfs.ErrDependents)
		}
	}},
	{"destroy of a snapshot", func(w *world) {
		w.fs("v")
		w.must(w.admin.TakeSnapshot(w.at("v@s")))
		w.works(w.Destroy(w.Context(), w.at("v@s")))
		w.fails(w.Destroy(w.Context(), w.at("v@s")), zfs.ErrNotExist)
		w.fails(w.Destroy(w.Context(), w.at("none@s")), zfs.ErrNoParent)
		w.works(w.Destroy(w.Context(), w.at("v")))
	}},
	{"destroy of a snapshot with a clone", func(w *world) {
		w.fs("v")
		w.must(w.admin.TakeSnapshot(w.at("v@s")), w.admin.MakeClone(w.at("v@s"), w.at("c")))
		w.fails(w.Destroy(w.Context(), w.at("v@s")), zfs.ErrDependents)
		w.fails(w.Destroy(w.Context(), w.at("v")), zfs.ErrDependents)
		w.works(w.Destroy(w.Context(), w.at("c")))
		w.works(w.Destroy(w.Context(), w.at("v@s")))
	}},
	{"destroy of a held snapshot", func(w *world) {
		w.fs("v")
		w.must(w.admin.TakeSnapshot(w.at("v@s")))
		release, err := w.admin.HoldSnapshot(w.at("v@s"))
		w.must(err)
		w.fails(w.Destroy(w.Context(), w.at("v@s")), zfs.ErrBusy)
		release()
		w.works(w.Destroy(w.Context(), w.at("v@s")))
	}},
	{"destroy of a mounted filesystem that nobody uses", func(w *world) {
		w.must(w.admin.Make(w.at("v")))
		w.works(w.Destroy(w.Context(), w.at("v")))
		w.gone(w.at("v"))
	}},
	{"destroy of a mounted filesystem with an open file", func(w *world) {
		w.must(w.admin.Make(w.at("v")), w.admin.Write(w.at("v"), 1))
		release, err := w.admin.HoldOpen(w.at("v"))
		w.must(err)
		w.fails(w.Destroy(w.Context(), w.at("v")), zfs.ErrBusy)
		release()
		w.works(w.Destroy(w.Context(), w.at("v")))
	}},
	{"destroy of an open zvol", func(w *world) {
		name := w.zvol("z", 16<<20)
		release, err := w.admin.HoldOpen(name)
		w.must(err)
		w.fails(w.Destroy(w.Context(), name), zfs.ErrBusy)
		release()
		w.eventually(func() error { return w.Destroy(w.Context(), name) }, zfs.ErrBusy)
	}},
	{"a fresh zvol is busy for a moment at most", func(w *world) {
		for range 5 {
			name := w.zvol("z", 16<<20)
			w.eventually(func() error { return w.Destroy(w.Context(), name) }, zfs.ErrBusy)
		}
	}},
}

var renameRules = []rule{
	{"rename keeps properties, snapshots and children", func(w *world) {
		w.fs("v", "tarn:name=x", "refquota=104857600")
		w.fs("v/child", "tarn:name=y")
		w.must(w.admin.TakeSnapshot(w.at("v@s")), w.admin.Make(w.at("grave"), settings("mountpoint=none")...))
		w.works(w.Rename(w.Context(), w.at("v"), w.at("grave/w")))
		w.gone(w.at("v"))
		d := w.get(w.at("grave/w"))
		name, _ := d.Local("tarn:name")
		equal(w, "tarn:name", name, "x")
		equal(w, "refquota", d.Bytes("refquota"), 100<<20)
		w.get(w.at("grave/w/child"))
		w.get(w.at("grave/w@s"))
		mountpoint, _ := d.Value("mountpoint")
		equal(w, "mountpoint", mountpoint, "none")
	}},
	{"rename of a mounted filesystem leaves it mounted", func(w *world) {
		w.must(w.admin.Make(w.at("v")), w.admin.Write(w.at("v"), 1))
		release, err := w.admin.HoldOpen(w.at("v"))
		w.must(err)
		defer release()
		w.works(w.Rename(w.Context(), w.at("v"), w.at("w")))
		dir, mounted, err := w.MountedAt(w.Context(), w.at("w"))
		w.works(err)
		equal(w, "mounted", mounted, true)
		equal(w, "where", dir, w.dir+"/v")
		_, mounted, err = w.MountedAt(w.Context(), w.at("v"))
		w.works(err)
		equal(w, "mounted under the old name", mounted, false)
	}},
	{"rename of a zvol, at once and held open", func(w *world) {
		w.zvol("z", 16<<20, "tarn:name=x")
		w.works(w.Rename(w.Context(), w.at("z"), w.at("y")))
		release, err := w.admin.HoldOpen(w.at("y"))
		w.must(err)
		defer release()
		w.works(w.Rename(w.Context(), w.at("y"), w.at("x")))
		name, _ := w.get(w.at("x")).Local("tarn:name")
		equal(w, "tarn:name", name, "x")
	}},
	{"rename of a filesystem with zvols below", func(w *world) {
		w.must(w.admin.Make(w.at("v")))
		w.zvol("v/z", 16<<20)
		w.works(w.Rename(w.Context(), w.at("v"), w.at("w")))
		_, mounted, err := w.MountedAt(w.Context(), w.at("w"))
		w.works(err)
		equal(w, "mounted", mounted, true)
		w.get(w.at("w/z"))
	}},
	{"rename of a snapshot with a clone", func(w *world) {
		w.fs("v")
		w.must(w.admin.TakeSnapshot(w.at("v@s")), w.admin.MakeClone(w.at("v@s"), w.at("c")))
		w.works(w.Rename(w.Context(), w.at("v@s"), w.at("v@t")))
		w.gone(w.at("v@s"))
		origin, _ := w.get(w.at("c")).Value("origin")
		equal(w, "origin", origin, w.at("v@t"))
	}},
	{"rename that cannot be", func(w *world) {
		w.fs("v")
		w.fs("w")
		w.zvol("z", 16<<20)
		w.fails(w.Rename(w.Context(), w.at("none"), w.at("x")), zfs.ErrNotExist)
		w.fails(w.Rename(w.Context(), w.at("v"), w.at("w")), zfs.ErrExists)
		w.fails(w.Rename(w.Context(), w.at("v"), w.at("none/x")), zfs.ErrNoParent)
		w.fails(w.Rename(w.Context(), w.at("z"), w.at("none/x")), zfs.ErrNoParent)
		w.fails(w.Rename(w.Context(), w.at("v"), "nopool/x"), zfs.ErrNoParent)
		w.fails(w.Rename(w.Context(), w.at("v"), w.at("v/x")), zfs.ErrBadValue)
		w.fails(w.Rename(w.Context(), w.at("v"), w.at("a%b")), zfs.ErrBadValue)
		w.fails(w.Rename(w.Context(), w.at("v"), w.at("z/x")), nil)
		w.fails(w.Rename(w.Context(), w.at("v"), w.at(strings.Repeat("n", 256-len(w.at(""))))), zfs.ErrBadValue)
		w.get(w.at("v"))
	}},
	{"rename when a child's or snapshot's name would be too long", func(w *world) {
		w.fs("v")
		w.must(w.admin.TakeSnapshot(w.at("v@s")))
		w.fails(w.Rename(w.Context(), w.at("v"), w.at(strings.Repeat("n", 255-len(w.at(""))))), zfs.ErrBadValue)
		w.get(w.at("v@s"))
	}},
	{"rename to its own name", func(w *world) {
		w.works(w.Rename(w.Context(), w.fs("v"), w.at("v")))
	}},
}
