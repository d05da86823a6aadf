package zfs_test

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var watchRules = []rule{
	{"a dataset is read with the one above it", func(w *world) {
		name := w.fs("v", "tarn:name=x")
		w.fs("v/child")
		d, above, err := w.GetWithParent(w.Context(), name)
		w.works(err)
		equal(w, "dataset", d.Name, name)
		equal(w, "parent", above.Name, w.parent)
		own, _ := d.Local("tarn:name")
		equal(w, "tarn:name", own, "x")
		equal(w, "available", above.Bytes("available") > 0, true)
		_, _, err = w.GetWithParent(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNotExist)
		_, _, err = w.GetWithParent(w.Context(), w.at("none/v"))
		w.fails(err, zfs.ErrNoParent)
	}},
	{"where filesystems are mounted", func(w *world) {
		w.must(w.admin.Make(w.at("v")))
		w.fs("w")
		elsewhere := w.fs("x")
		w.must(w.Mount(w.Context(), elsewhere, filepath.Join(w.dir, "else where"), true))
		dirs, err := w.Mounts(w.Context())
		w.works(err)
		for name, want := range map[string]string{w.parent: w.dir, w.at("v"): w.dir + "/v", w.at("w"): "", elsewhere: w.dir + "/else where"} {
			equal(w, "the directory of "+name, dirs[name], want)
		}
	}},
	{"whose key is missing", func(w *world) {
		w.must(w.admin.MakeEncrypted(w.at("enc")))
		w.fs("enc/v")
		w.fs("plain")
		w.must(w.admin.UnmountByHand(w.at("enc")), w.admin.LockKey(w.at("enc")))
		for parent, child := range map[string]string{w.parent: w.at("enc"), w.at("enc"): w.at("enc/v")} {
			missing, err := w.KeysMissing(w.Context(), parent)
			w.works(err)
			equal(w, "missing", len(missing), 1)
			equal(w, "missing of "+child, missing[child], true)
		}
		w.must(w.admin.LoadKey(w.at("enc")))
		missing, err := w.KeysMissing(w.Context(), w.parent)
		w.works(err)
		equal(w, "missing", len(missing), 0)
		_, err = w.KeysMissing(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNoParent)
	}},
	{"a remount is of what is mounted", func(w *world) {
		_, dir := w.mounted("v")
		for _, atime := range []bool{false, true, true} {
			w.works(w.Remount(w.Context(), dir, atime))
		}
		w.must(w.Unmount(w.Context(), dir), os.MkdirAll(dir, 0o755))
		w.errno(w.Remount(w.Context(), dir, false), syscall.EINVAL)
	}},
	{"the state of a pool", func(w *world) {
		state, err := w.PoolState(w.Context(), w.parent)
		w.works(err)
		equal(w, "state", state, "ONLINE")
		_, err = w.PoolState(w.Context(), "nopool/v")
		w.fails(err, zfs.ErrNotExist)
	}},
	{"without their key snapshots and clones are made, and nothing is copied", func(w *world) {
		w.must(w.admin.MakeEncrypted(w.at("enc")))
		fs, z := w.fs("enc/v", "tarn:name=v"), w.zvol("enc/z", 16<<20)
		w.must(w.admin.UnmountByHand(w.at("enc")), w.admin.LockKey(w.at("enc")))
		w.works(w.Snapshot(w.Context(), zfs.SnapshotSpec{Names: []string{fs + "@s", z + "@s"}, Properties: settings("tarn:name=s")}))
		w.works(w.Clone(w.Context(), fs+"@s", zfs.Spec{Name: w.at("enc/c")}))
		equal(w, "key of a clone is missing", w.get(w.at("enc/c")).KeyMissing(), true)
		w.fails(w.Copy(w.Context(), fs+"@s", zfs.Spec{Name: w.at("enc/d")}), zfs.ErrNoKey)
		w.fs("plain")
		w.snap("plain@s")
		w.fails(w.Copy(w.Context(), w.at("plain@s"), zfs.Spec{Name: w.at("enc/d")}), zfs.ErrNoKey)
		w.gone(zfs.PartialName(w.at("enc/d")))
		w.works(w.Destroy(w.Context(), w.at("enc/c")))
		w.works(w.DestroyLater(w.Context(), fs+"@s"))
		w.must(w.admin.LoadKey(w.at("enc")))
		w.works(w.Copy(w.Context(), w.at("plain@s"), zfs.Spec{Name: w.at("enc/d")}))
		equal(w, "key of a copy is missing", w.get(w.at("enc/d")).KeyMissing(), false)
	}},
}
