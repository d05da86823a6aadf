package zfs_test

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var useRules = []rule{
	{"an untouched clone has next to nothing of its own", func(w *world) {
		fs, z := w.fs("v"), w.zvol("z", 16<<20)
		w.must(w.admin.Write(fs, 1<<20), w.admin.Write(z, 1<<20))
		w.snap("v@s", "z@s")
		w.must(
			w.Clone(w.Context(), fs+"@s", zfs.Spec{Name: w.at("fs")}),
			w.Clone(w.Context(), fs+"@s", zfs.Spec{Name: w.at("fs quota"), Properties: settings("refquota=104857600", "tarn:name=a")}),
			w.Clone(w.Context(), z+"@s", zfs.Spec{Name: w.at("zvol"), VolumeBytes: 16 << 20, Thin: true}),
			w.Clone(w.Context(), z+"@s", zfs.Spec{Name: w.at("larger zvol"), VolumeBytes: 32 << 20, Thin: true, Properties: settings("tarn:name=b")}),
		)
		own := func(name string) int64 {
			bytes := w.get(w.at(name)).Bytes("usedbydataset")
			w.Logf("%s: %d bytes", name, bytes)
			return bytes
		}
		dir := filepath.Join(w.dir, "fs") // a boot mounts it
		w.must(w.Mount(w.Context(), w.at("fs"), dir, true), w.Unmount(w.Context(), dir))
		for _, name := range []string{"fs", "fs quota", "zvol", "larger zvol"} {
			equal(w, name+" has next to nothing", own(name) < zfs.UntouchedClone, true)
			w.must(w.admin.Write(w.at(name), 128<<10))
			equal(w, name+" has something", own(name) >= zfs.UntouchedClone, true)
		}
	}},
	{"what keeps snapshots is told of all of them, with one listing", func(w *world) {
		w.fs("v", "tarn:name=x")
		w.fs("v/below")
		w.zvol("z", 16<<20)
		w.snap("v@ours", "v/below@s", "z@held")
		w.must(w.admin.TakeSnapshot(w.at("v@of others")), w.admin.TakeSnapshot(w.parent+"@own"))
		w.must(w.Clone(w.Context(), w.at("v@ours"), zfs.Spec{Name: w.at("a")}), w.Clone(w.Context(), w.at("v@ours"), zfs.Spec{Name: w.at("b")}))
		release, err := w.admin.HoldSnapshot(w.at("z@held"))
		w.must(err, w.DestroyLater(w.Context(), w.at("v@ours")))
		list, err := w.SnapshotUses(w.Context(), w.parent)
		w.works(err)
		var got []string
		for _, d := range list {
			deferred, _ := d.Value("defer_destroy")
			line := strings.TrimPrefix(d.Name, w.parent+"/") + " " + deferred
			if len(d.Clones()) > 0 {
				line += " cloned"
			}
			if d.Bytes("userrefs") > 0 {
				line += " held"
			}
			got = append(got, line)
			if _, ok := d.Value("tarn:name"); ok {
				w.Errorf("%s shows other properties", d.Name)
			}
		}
		slices.Sort(got)
		equal(w, "uses", strings.Join(got, "; "), "v/below@s off; v@of others off; v@ours on cloned; z@held off held")
		release()
		_, err = w.SnapshotUses(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNoParent)
	}},
	{"an inventory is of everything below, whose it may be, with one listing", func(w *world) {
		w.fs("v", "tarn:name=x", "tarn:uuid=u")
		w.fs("v/below")
		w.zvol("z", 16<<20)
		w.snap("v@s")
		w.must(w.admin.TakeSnapshot(w.parent + "@own"))
		w.must(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c")}))
		list, err := w.Inventory(w.Context(), w.parent)
		w.works(err)
		var got []string
		for _, d := range list {
			kind, _ := d.Value("type")
			line := strings.TrimPrefix(d.Name, w.parent+"/") + " " + kind
			if _, own := d.Own("tarn:name"); own {
				line += " marked"
			}
			if len(d.Clones()) > 0 {
				line += " cloned"
			}
			got = append(got, line)
			if d.Name == w.at("v") || d.Name == w.at("z") {
				equal(w, d.Name+" takes something", d.Bytes("used") > 0, true)
			}
			equal(w, "the key of "+d.Name+" is missing", d.KeyMissing(), false)
		}
		slices.Sort(got)
		equal(w, "the list", strings.Join(got, "; "), "c filesystem; v filesystem marked; v/below filesystem; v@s snapshot cloned; z volume")
		_, err = w.Inventory(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNoParent)
	}},
	{"who has a property set is found in every pool", func(w *world) {
		w.fs("v", "tarn:uuid=a value")
		w.fs("v/below")
		w.zvol("z", 16<<20, "tarn:uuid=b")
		w.snap("v@s")
		holders, err := w.Holders(w.Context(), "tarn:uuid")
		w.works(err)
		equal(w, "holder of a value", holders["a value"], w.at("v"))
		equal(w, "holder of b", holders["b"], w.at("z"))
		for value, name := range holders {
			equal(w, "inherited: "+value, name == w.at("v/below"), false)
		}
		holders, err = w.Holders(w.Context(), "tarn:nobody")
		w.works(err)
		equal(w, "holders of nothing", len(holders), 0)
	}},
}
