package zfs_test

import (
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var cloneRules = []rule{
	{"a clone of a filesystem is not mounted, and has all its properties", func(w *world) {
		w.must(w.admin.Make(w.at("v"), settings("tarn:name=v", "refquota=104857600", "setuid=off")...), w.admin.Write(w.at("v"), 1<<20))
		w.snap("v@s")
		w.works(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), Properties: settings(
			"tarn:name=c", "tarn:empty=", "refquota=52428800", "refreservation=52428800", "compression=lz4")}))
		d := w.get(w.at("c"))
		equal(w, "type", d.Type(), zfs.Filesystem)
		for property, want := range map[string]string{"tarn:name": "c", "tarn:empty": "", "compression": "lz4", "canmount": "noauto"} {
			got, ok := d.Local(property)
			equal(w, property+" is local", ok, true)
			equal(w, property, got, want)
		}
		equal(w, "refquota", d.Bytes("refquota"), 50<<20)
		equal(w, "refreservation", d.Bytes("refreservation"), 50<<20)
		origin, _ := d.Value("origin")
		equal(w, "origin", origin, w.at("v@s"))
		setuid, _ := d.Value("setuid")
		equal(w, "setuid", setuid, "on") // from its parent, not from its origin
		w.unmounted(d.Name)
		equal(w, "clones", strings.Join(w.get(w.at("v@s")).Clones(), ","), w.at("c"))
		w.empty(d, false)
	}},
	{"canmount of a clone, which is then not mounted either", func(w *world) {
		w.fs("v")
		w.snap("v@s")
		w.must(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c")}))
		w.works(w.Set(w.Context(), w.at("c"), zfs.Setting{Name: "canmount", Value: "on"}))
		w.unmounted(w.at("c"))
		w.works(w.Mount(w.Context(), w.at("c"), w.dir+"/c", true))
		w.fails(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("d"), Properties: settings("canmount=on")}), zfs.ErrBadValue)
		w.gone(w.at("d"))
	}},
	{"a clone of a zvol has the size that it is given", func(w *world) {
		w.must(w.Create(w.Context(), zfs.Spec{Name: w.at("z"), VolumeBytes: 16 << 20, Properties: settings("volblocksize=16384")}))
		w.must(w.admin.Write(w.at("z"), 1<<20))
		w.snap("z@s")
		for _, c := range []struct {
			name     string
			bytes    int64
			thin     bool
			set      string
			reserved int64
		}{
			{"same", 16 << 20, true, "volmode=dev", 0},
			{"grown", 32 << 20, true, "volmode=dev", 0},
			{"thick", 16 << 20, false, "volmode=dev", 18874368},
			{"thick-grown", 32 << 20, false, "volmode=dev", 36175872},
			{"given", 32 << 20, false, "refreservation=auto", 36175872},
			{"less", 32 << 20, false, "refreservation=20971520", 20 << 20},
			{"shrunk", 8 << 20, true, "volmode=dev", 0}, // a trap: nobody asks
		} {
			w.works(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at(c.name), VolumeBytes: c.bytes, Thin: c.thin, Properties: settings("tarn:name=c", c.set)}))
			d := w.get(w.at(c.name))
			equal(w, c.name+" type", d.Type(), zfs.Volume)
			equal(w, c.name+" volsize", d.Bytes("volsize"), c.bytes)
			equal(w, c.name+" volblocksize", d.Bytes("volblocksize"), 16<<10)
			equal(w, c.name+" refreservation", d.Bytes("refreservation"), c.reserved)
			name, _ := d.Local("tarn:name")
			equal(w, c.name+" tarn:name", name, "c")
			w.empty(d, false)
		}
	}},
	{"clones that cannot be", func(w *world) {
		w.fs("v")
		z := w.zvol("z", 16<<20)
		w.snap("v@s")
		w.snap("z@s")
		fs := func(name string) zfs.Spec { return zfs.Spec{Name: w.at(name)} }
		w.fails(w.Clone(w.Context(), w.at("v@s"), fs("v")), zfs.ErrExists)
		w.fails(w.Clone(w.Context(), w.at("v@s"), fs("z")), zfs.ErrExists)
		w.fails(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: z, VolumeBytes: 16 << 20, Thin: true}), zfs.ErrExists)
		w.fails(w.Clone(w.Context(), w.at("v@none"), fs("c")), zfs.ErrNotExist)
		w.fails(w.Clone(w.Context(), w.at("none@s"), fs("c")), zfs.ErrNotExist)
		w.fails(w.Clone(w.Context(), "nopool/v@s", fs("c")), zfs.ErrNotExist)
		w.fails(w.Clone(w.Context(), w.at("v@none"), fs("v")), zfs.ErrNotExist)
		w.fails(w.Clone(w.Context(), w.at("v"), fs("c")), zfs.ErrBadValue)
		w.fails(w.Clone(w.Context(), w.at("v@s"), fs("none/c")), zfs.ErrNoParent)
		w.fails(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: "nopool/c"}), zfs.ErrNoParent)
		w.fails(w.Clone(w.Context(), w.at("v@s"), fs("z/c")), nil)
		for _, name := range []string{"a%b", "a@b", "", "a//b", strings.Repeat("n", 256-len(w.at("")))} {
			w.fails(w.Clone(w.Context(), w.at("v@s"), fs(name)), zfs.ErrBadValue)
		}
	}},
	{"a refused value leaves no clone", func(w *world) {
		w.must(w.admin.Make(w.at("v")), w.admin.Write(w.at("v"), 1<<20))
		w.snap("v@s")
		for _, bad := range []string{
			"compression=fast", "recordsize=3000", "nosuch=1", "Tarn:x=1", "tarn:name=y", "volsize=1048576", "volblocksize=8192",
			"refreservation=auto", "refquota=lots", "tarn:long=" + strings.Repeat("v", 8192),
		} {
			w.fails(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=x", bad)}), zfs.ErrBadValue)
			w.gone(w.at("c"))
		}
		w.zvol("z", 16<<20, "volblocksize=16384")
		w.snap("z@s")
		for _, bad := range []string{"volblocksize=8192", "volblocksize=16384", "refquota=1048576", "volsize=16777216"} {
			w.fails(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: 16 << 20, Thin: true, Properties: settings("tarn:name=x", bad)}), zfs.ErrBadValue)
			w.gone(w.at("c"))
		}
		w.fails(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: 16<<20 + 1, Thin: true}), zfs.ErrBadValue)
		w.fails(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at("c")}), zfs.ErrBadValue)
		w.fails(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: 16 << 20, Thin: true}), zfs.ErrBadValue)
		w.gone(w.at("c"))
	}},
	{"a clone that does not fit leaves nothing", func(w *world) {
		huge := strconv.FormatInt(w.poolBytes, 10)
		w.must(w.admin.Make(w.at("v")), w.admin.Write(w.at("v"), 1<<20))
		w.zvol("z", 16<<20)
		w.snap("v@s", "z@s")
		for _, bad := range []string{"refreservation=" + huge, "refquota=10"} {
			w.fails(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=x", bad)}), zfs.ErrNoSpace)
			w.gone(w.at("c"))
		}
		w.fails(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c"), Properties: settings("refquota=5242880", "refreservation=10485760")}), zfs.ErrNoSpace)
		w.gone(w.at("c"))
		for range 5 { // udev is fast enough to hold some of them
			w.fails(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: w.poolBytes, Properties: settings("tarn:name=x")}), zfs.ErrNoSpace)
			w.gone(w.at("c"))
		}
		w.works(w.Clone(w.Context(), w.at("z@s"), zfs.Spec{Name: w.at("c"), VolumeBytes: 100 * w.poolBytes, Thin: true}))
	}},
	{"a clone keeps what it shares when its source is gone from sight", func(w *world) {
		w.must(w.admin.Make(w.at("v")), w.admin.Write(w.at("v"), 1<<20), w.admin.Make(w.at("grave"), settings("mountpoint=none", "canmount=off")...))
		w.snap("v@s")
		w.must(w.Clone(w.Context(), w.at("v@s"), zfs.Spec{Name: w.at("c")}))
		w.works(w.Rename(w.Context(), w.at("v"), w.at("grave/v")))
		origin, _ := w.get(w.at("c")).Value("origin")
		equal(w, "origin", origin, w.at("grave/v@s"))
		w.fails(w.Destroy(w.Context(), w.at("grave/v")), zfs.ErrDependents)
		w.works(w.Destroy(w.Context(), w.at("c")))
		w.works(w.Destroy(w.Context(), w.at("grave/v@s")))
		w.works(w.Destroy(w.Context(), w.at("grave/v")))
	}},
}

func (w *world) unmounted(dataset string) {
	w.Helper()
	_, mounted, err := w.MountedAt(w.Context(), dataset)
	w.works(err)
	equal(w, dataset+" is mounted", mounted, false)
}

var setAllRules = []rule{
	{"several properties at once, in any order", func(w *world) {
		name := w.fs("v", "refquota=10485760", "refreservation=10485760")
		for _, bytes := range []string{"20971520", "5242880"} {
			w.works(w.SetAll(w.Context(), name, settings("tarn:x="+bytes, "refreservation="+bytes, "refquota="+bytes)))
			d := w.get(name)
			x, _ := d.Local("tarn:x")
			for what, got := range map[string]string{"tarn:x": x, "refquota": strconv.FormatInt(d.Bytes("refquota"), 10), "refreservation": strconv.FormatInt(d.Bytes("refreservation"), 10)} {
				equal(w, what, got, bytes)
			}
		}
		w.fails(w.SetAll(w.Context(), w.at("none"), settings("tarn:x=1", "tarn:y=2")), zfs.ErrNotExist)
	}},
	{"what is impossible in itself sets nothing", func(w *world) {
		name := w.fs("v")
		for _, bad := range []string{"Tarn:y=1", "compression=fast", "tarn:x=2", "nosuch=1", "volsize=1048576"} {
			w.fails(w.SetAll(w.Context(), name, settings("tarn:x=1", bad)), zfs.ErrBadValue)
			_, ok := w.get(name).Value("tarn:x")
			equal(w, "tarn:x is set beside "+bad, ok, false)
		}
	}},
	{"what the kernel refuses leaves the rest set", func(w *world) {
		name, z := w.fs("v"), w.zvol("z", 16<<20, "volblocksize=16384")
		w.fails(w.SetAll(w.Context(), name, settings("refquota=10", "tarn:x=1", "compression=lz4")), zfs.ErrBadValue)
		x, _ := w.get(name).Local("tarn:x")
		equal(w, "tarn:x", x, "1")
		equal(w, "refquota", w.get(name).Bytes("refquota"), 0)
		compression, _ := w.get(name).Local("compression")
		equal(w, "compression", compression, "lz4")
		huge := strconv.FormatInt(w.poolBytes, 10)
		w.fails(w.SetAll(w.Context(), z, settings("volsize=33554432", "refreservation="+huge)), zfs.ErrNoSpace)
		equal(w, "volsize", w.get(z).Bytes("volsize"), 32<<20)
		equal(w, "refreservation", w.get(z).Bytes("refreservation"), 0)
	}},
	{"the reservation of a zvol with its size", func(w *world) {
		z := w.zvol("z", 16<<20, "volblocksize=16384")
		w.works(w.SetAll(w.Context(), z, settings("volsize=33554432", "refreservation=auto")))
		equal(w, "refreservation", w.get(z).Bytes("refreservation"), 36175872)
		w.works(w.SetAll(w.Context(), z, settings("volsize=50331648", "tarn:x=1")))
		equal(w, "refreservation", w.get(z).Bytes("refreservation"), 53215232)
		w.works(w.SetAll(w.Context(), z, settings("volsize=67108864", "refreservation=none")))
		equal(w, "refreservation", w.get(z).Bytes("refreservation"), 0)
		w.fails(w.Set(w.Context(), w.fs("v"), zfs.Setting{Name: "refreservation", Value: "auto"}), zfs.ErrBadValue)
	}},
}
