package zfs_test

import (
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var useRules = []rule{
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
}
