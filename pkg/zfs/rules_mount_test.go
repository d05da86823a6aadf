package zfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// mounted makes a filesystem and mounts it where ZFS would.
func (w *world) mounted(name string) (dataset, dir string) {
	w.Helper()
	dataset, dir = w.fs(name), filepath.Join(w.dir, name)
	w.must(w.Mount(w.Context(), dataset, dir, true))
	return dataset, dir
}

// errno expects a system call's error without any cause of its own.
func (w *world) errno(err error, want syscall.Errno) {
	w.Helper()
	w.fails(err, nil)
	if !errors.Is(err, want) {
		w.Fatalf("the error is %v, and should be %v", err, want)
	}
}

var mountRules = []rule{
	{"mount and unmount", func(w *world) {
		name, dir := w.mounted("v")
		at, ok, err := w.MountedAt(w.Context(), name)
		w.works(err)
		equal(w, "mounted", ok, true)
		equal(w, "where", at, dir)
		w.must(os.WriteFile(filepath.Join(dir, "keep"), []byte("x"), 0o600))
		w.works(w.Unmount(w.Context(), dir))
		_, ok, err = w.MountedAt(w.Context(), name)
		w.works(err)
		equal(w, "mounted", ok, false)
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			w.Fatalf("the mount point is still there: %v", err)
		}
		w.works(w.Mount(w.Context(), name, dir, false))
		data, err := os.ReadFile(filepath.Join(dir, "keep"))
		w.works(err)
		equal(w, "data", string(data), "x")
	}},
	{"mount of what is mounted", func(w *world) {
		name, dir := w.mounted("v")
		w.errno(w.Mount(w.Context(), name, dir, true), syscall.EBUSY)
		w.errno(w.Mount(w.Context(), name, dir+" elsewhere", true), syscall.EBUSY)
	}},
	{"mount over files is refused", func(w *world) {
		name, dir := w.fs("v"), filepath.Join(w.dir, "v")
		w.must(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "keep"), nil, 0o600))
		w.fails(w.Mount(w.Context(), name, dir, true), nil)
		_, ok, err := w.MountedAt(w.Context(), name)
		w.works(err)
		equal(w, "mounted", ok, false)
		if _, err := os.Stat(filepath.Join(dir, "keep")); err != nil {
			w.Fatal(err)
		}
	}},
	{"mount of what is no filesystem", func(w *world) {
		w.fails(w.Mount(w.Context(), w.at("none"), filepath.Join(w.dir, "v"), true), zfs.ErrNotExist)
		w.fails(w.Mount(w.Context(), w.zvol("z", 16<<20), filepath.Join(w.dir, "v"), true), nil)
	}},
	{"unmount of what is in use", func(w *world) {
		name, dir := w.mounted("v")
		w.must(w.admin.Write(name, 1))
		release, err := w.admin.HoldOpen(name)
		w.must(err)
		w.fails(w.Unmount(w.Context(), dir), zfs.ErrBusy)
		release()
		w.works(w.Unmount(w.Context(), dir))
	}},
	{"unmount of what has a mount below it", func(w *world) {
		_, dir := w.mounted("v")
		w.must(w.Mount(w.Context(), w.fs("v/w"), filepath.Join(dir, "w"), true))
		w.fails(w.Unmount(w.Context(), dir), zfs.ErrBusy)
	}},
	{"unmount of what is not mounted", func(w *world) {
		dir := filepath.Join(w.dir, "plain")
		w.must(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "keep"), nil, 0o600))
		w.errno(w.Unmount(w.Context(), dir), syscall.EINVAL)
		if _, err := os.Stat(filepath.Join(dir, "keep")); err != nil {
			w.Fatal(err)
		}
	}},
	{"a root is set while it is fresh, and left when it is not", func(w *world) {
		name, dir := w.mounted("v")
		w.works(w.SetRoot(w.Context(), dir, zfs.Root{UID: 1000, GID: 1001, Mode: 0o2775}))
		equal(w, "root", w.rootOf(name, dir), zfs.Root{UID: 1000, GID: 1001, Mode: 0o2775})
		w.works(w.SetRoot(w.Context(), dir, zfs.Root{UID: 1, GID: 1, Mode: 0o700}))
		equal(w, "root", w.rootOf(name, dir), zfs.Root{UID: 1000, GID: 1001, Mode: 0o2775})

		name, dir = w.mounted("w")
		w.must(w.admin.Write(name, 1))
		w.works(w.SetRoot(w.Context(), dir, zfs.Root{UID: 1000, GID: 1001, Mode: 0o2775}))
		equal(w, "root with a file in it", w.rootOf(name, dir), zfs.Root{Mode: 0o755})
	}},
	{"a root that was cut off after its owner gets its mode", func(w *world) {
		name, dir := w.mounted("v")
		w.works(w.SetRoot(w.Context(), dir, zfs.Root{UID: 1000, GID: 1001, Mode: 0o755}))
		w.works(w.SetRoot(w.Context(), dir, zfs.Root{UID: 1000, GID: 1001, Mode: 0o770}))
		equal(w, "root", w.rootOf(name, dir), zfs.Root{UID: 1000, GID: 1001, Mode: 0o770})
	}},
}

var emptyRules = []rule{
	{"a bare filesystem looks empty", func(w *world) {
		w.must(w.admin.Bare(w.at("v"), 0))
		d := w.get(w.at("v"))
		equal(w, "unmarked", d.Unmarked(), true)
		w.empty(d, true)
		_, mounted, err := w.MountedAt(w.Context(), d.Name)
		w.works(err)
		equal(w, "left mounted", mounted, false)
		w.works(w.Mount(w.Context(), d.Name, filepath.Join(w.dir, "v"), true))
		w.empty(d, true)
	}},
	{"a filesystem with one byte does not", func(w *world) {
		w.must(w.admin.Bare(w.at("v"), 0), w.admin.Write(w.at("v"), 1))
		w.empty(w.get(w.at("v")), false)
	}},
	{"a bare zvol looks empty, and one with a byte does not", func(w *world) {
		for _, block := range []string{"512", "4096", "8192", "16384", "131072"} {
			for _, bytes := range []int64{1 << 20, 1 << 40} {
				name := w.zvol("z", bytes, "volblocksize="+block)
				w.empty(w.get(name), true)
				w.must(w.admin.Write(name, 1))
				w.empty(w.get(name), false)
				w.eventually(func() error { return w.Destroy(w.Context(), name) }, zfs.ErrBusy)
			}
		}
	}},
	{"a zvol whose last byte is written does not look empty", func(w *world) {
		name := w.zvol("z", 1<<30)
		w.must(w.admin.WriteLast(name))
		w.empty(w.get(name), false)
	}},
	{"looking leaves nothing behind", func(w *world) {
		name := w.zvol("z", 1<<30)
		w.empty(w.get(name), true)
		children, err := w.Children(w.Context(), w.parent)
		w.works(err)
		equal(w, "children", len(children), 1)
	}},
}

func (w *world) empty(d zfs.Dataset, want bool) {
	w.Helper()
	got, err := w.LooksEmpty(w.Context(), d)
	w.works(err)
	equal(w, d.Name+" looks empty", got, want)
}

var keyRules = []rule{
	{"without its key a dataset can be read and marked, and nothing be made or mounted", func(w *world) { // C17
		w.must(w.admin.MakeEncrypted(w.at("enc")))
		fs, z := w.fs("enc/v"), w.zvol("enc/z", 16<<20)
		equal(w, "key missing", w.get(fs).KeyMissing(), false)
		equal(w, "key missing without encryption", w.get(w.fs("plain")).KeyMissing(), false)
		w.must(w.admin.UnmountByHand(w.at("enc")), w.admin.LockKey(w.at("enc")))
		for _, name := range []string{w.at("enc"), fs, z} {
			equal(w, "key missing", w.get(name).KeyMissing(), true)
		}
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("enc/new")}), zfs.ErrNoKey)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("enc/new"), VolumeBytes: 16 << 20, Thin: true}), zfs.ErrNoKey)
		w.fails(w.Mount(w.Context(), fs, filepath.Join(w.dir, "v"), true), zfs.ErrNoKey)
		_, err := w.LooksEmpty(w.Context(), w.get(fs))
		w.fails(err, zfs.ErrNoKey)
		w.works(w.Set(w.Context(), fs, zfs.Setting{Name: "tarn:x", Value: "1"}))
		w.works(w.Rename(w.Context(), fs, w.at("enc/w")))
		w.eventually(func() error { return w.Destroy(w.Context(), z) }, zfs.ErrBusy)
		w.must(w.admin.LoadKey(w.at("enc")))
		w.works(w.Mount(w.Context(), w.at("enc/w"), filepath.Join(w.dir, "v"), true))
	}},
}
