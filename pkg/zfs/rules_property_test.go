package zfs_test

import (
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var propertyRules = []rule{
	{"set and inherit a user property", func(w *world) {
		name := w.fs("v")
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "tarn:node.n-1.example", Value: `{"node":"n@192.0.2.1"}`}))
		value, _ := w.get(name).Local("tarn:node.n-1.example")
		equal(w, "value", value, `{"node":"n@192.0.2.1"}`)
		w.works(w.Inherit(w.Context(), name, "tarn:node.n-1.example"))
		_, ok := w.get(name).Value("tarn:node.n-1.example")
		equal(w, "set", ok, false)
		w.works(w.Inherit(w.Context(), name, "tarn:node.n-1.example"))
	}},
	{"an empty value is a local value", func(w *world) {
		name := w.fs("v")
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "tarn:x", Value: ""}))
		value, ok := w.get(name).Local("tarn:x")
		equal(w, "local", ok, true)
		equal(w, "value", value, "")
	}},
	{"the longest value and name, and one byte more", func(w *world) {
		name := w.fs("v")
		long := strings.Repeat("v", 8191)
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "tarn:x", Value: long}))
		value, _ := w.get(name).Local("tarn:x")
		equal(w, "value is whole", value == long, true)
		w.fails(w.Set(w.Context(), name, zfs.Setting{Name: "tarn:x", Value: long + "v"}), zfs.ErrBadValue)
		property := "tarn:" + strings.Repeat("p", 250)
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: property, Value: "1"}))
		w.fails(w.Set(w.Context(), name, zfs.Setting{Name: property + "p", Value: "1"}), zfs.ErrBadValue)
	}},
	{"set of what is refused", func(w *world) {
		name, z := w.fs("v"), w.zvol("z", 16<<20, "volblocksize=16384")
		for _, bad := range []string{
			"compression=fast", "nosuch=1", "Tarn:x=1", "tarn:X=1", "tarn:a/b=1", "volsize=1048576", "recordsize=3000",
			"refquota=10", "quota=10", "refquota=lots",
		} {
			w.fails(w.Set(w.Context(), name, settings(bad)[0]), zfs.ErrBadValue)
		}
		for _, bad := range []string{"volsize=16777217", "volsize=0", "volblocksize=4096", "refquota=1048576"} {
			w.fails(w.Set(w.Context(), z, settings(bad)[0]), zfs.ErrBadValue)
		}
		w.fails(w.Set(w.Context(), w.at("none"), zfs.Setting{Name: "tarn:x", Value: "1"}), zfs.ErrNotExist)
	}},
	{"inherit of what is refused", func(w *world) {
		name := w.fs("v")
		for _, property := range []string{"refquota", "canmount"} {
			w.fails(w.Inherit(w.Context(), name, property), zfs.ErrBadValue)
		}
		for _, property := range []string{"nosuch", "Tarn:x"} { // the reason drowns in the usage that follows it
			w.fails(w.Inherit(w.Context(), name, property), nil)
		}
		w.fails(w.Inherit(w.Context(), w.at("none"), "tarn:x"), zfs.ErrNotExist)
	}},
	{"a shrinking volsize is not refused", func(w *world) {
		name := w.zvol("z", 16<<20, "volblocksize=16384")
		w.must(w.admin.Write(name, 1))
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "volsize", Value: "16384"}))
		equal(w, "volsize", w.get(name).Bytes("volsize"), 16384)
	}},
	{"refquota holds refreservation from both sides", func(w *world) {
		name := w.fs("v", "refquota=10485760", "refreservation=10485760")
		w.fails(w.Set(w.Context(), name, zfs.Setting{Name: "refquota", Value: "5242880"}), zfs.ErrBadValue)
		w.fails(w.Set(w.Context(), name, zfs.Setting{Name: "refreservation", Value: "20971520"}), zfs.ErrNoSpace)
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "refquota", Value: "20971520"}))
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "refreservation", Value: "20971520"}))
	}},
}

var readRules = []rule{
	{"what does not exist, and what cannot be known", func(w *world) {
		_, err := w.Get(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNotExist)
		_, err = w.Get(w.Context(), w.at("a%b"))
		w.fails(err, zfs.ErrNotExist)
		_, err = w.Get(w.Context(), w.fs("v")+"@none")
		w.fails(err, zfs.ErrNotExist)
		_, err = w.Get(w.Context(), w.at("none/v"))
		w.fails(err, zfs.ErrNoParent)
		_, err = w.Get(w.Context(), w.at("none@s"))
		w.fails(err, zfs.ErrNoParent)
		_, err = w.Get(w.Context(), "nopool/v")
		w.fails(err, zfs.ErrNoParent)
		_, err = w.Children(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNoParent)
		_, err = w.Available(w.Context(), w.at("none"))
		w.fails(err, zfs.ErrNoParent)
	}},
	{"sources", func(w *world) {
		w.must(w.admin.Put(w.parent, "tarn:driver", "x"), w.admin.Put(w.parent, "atime", "off"))
		name := w.fs("v", "tarn:name=y")
		d := w.get(name)
		value, ok := d.Value("tarn:driver")
		equal(w, "inherited value is seen", ok, true)
		equal(w, "inherited value", value, "x")
		_, ok = d.Own("tarn:driver")
		equal(w, "inherited is own", ok, false)
		value, _ = d.Value("atime")
		equal(w, "atime", value, "off")
		_, ok = d.Own("atime")
		equal(w, "inherited atime is own", ok, false)
		_, ok = d.Own("compression")
		equal(w, "default is own", ok, false)
		_, ok = d.Own("used")
		equal(w, "a number is own", ok, false)
		mountpoint, _ := d.Value("mountpoint")
		equal(w, "mountpoint", mountpoint, w.dir+"/v")
		equal(w, "unmarked", d.Unmarked(), false)
	}},
	{"received properties are own, not local, until they are set here", func(w *world) {
		for _, name := range []string{w.fs("v", "tarn:name=x", "tarn:node.n=1", "refquota=104857600"), w.zvol("z", 16<<20, "tarn:name=x", "tarn:node.n=1")} {
			typ := w.get(name).Type()
			w.must(w.admin.Receive(name))
			d := w.get(name)
			equal(w, "type", d.Type(), typ)
			value, _ := d.Own("tarn:name")
			equal(w, "own", value, "x")
			_, ok := d.Local("tarn:name")
			equal(w, "local", ok, false)
			equal(w, "publications", len(d.LocalPrefix("tarn:node.")), 0)
			w.works(w.Set(w.Context(), name, zfs.Setting{Name: "tarn:node.n", Value: "2"}))
			equal(w, "publications", len(w.get(name).LocalPrefix("tarn:node.")), 1)
			w.works(w.Inherit(w.Context(), name, "tarn:node.n"))
			_, ok = w.get(name).Value("tarn:node.n")
			equal(w, "set after inherit", ok, false)
		}
		children, err := w.Children(w.Context(), w.parent)
		w.works(err)
		equal(w, "children", len(children), 2)
		for _, d := range children {
			value, _ := d.Own("tarn:name")
			equal(w, "own", value, "x")
			equal(w, "type", d.Type() == zfs.Volume, strings.HasSuffix(d.Name, "z"))
		}
	}},
	{"children are the datasets directly below, with what is their own", func(w *world) {
		w.must(w.admin.Put(w.parent, "tarn:driver", "x"))
		w.fs("b", "tarn:name=1", "refquota=104857600")
		w.fs("b/deep", "tarn:name=2")
		w.zvol("a", 16<<20, "tarn:name=3")
		w.fs("c")
		w.must(w.admin.TakeSnapshot(w.at("b@s")))
		children, err := w.Children(w.Context(), w.parent)
		w.works(err)
		var names []string
		for _, d := range children {
			names = append(names, strings.TrimPrefix(d.Name, w.parent))
			_, ok := d.Value("tarn:driver")
			equal(w, "inherited value is listed", ok, false)
		}
		slices.Sort(names)
		equal(w, "children", strings.Join(names, " "), "/a /b")
		i := slices.IndexFunc(children, func(d zfs.Dataset) bool { return d.Name == w.at("b") })
		equal(w, "refquota", children[i].Bytes("refquota"), 100<<20)
		equal(w, "volsize", children[1-i].Bytes("volsize"), 16<<20)
	}},
	{"no children", func(w *world) {
		children, err := w.Children(w.Context(), w.parent)
		w.works(err)
		equal(w, "children", len(children), 0)
	}},
	{"a snapshot can be read", func(w *world) {
		w.fs("v", "tarn:name=x")
		w.must(w.admin.TakeSnapshot(w.at("v@s")), w.admin.Put(w.at("v@s"), "tarn:name", "s"))
		d := w.get(w.at("v@s"))
		value, _ := d.Local("tarn:name")
		equal(w, "tarn:name", value, "s")
		typ, _ := d.Value("type")
		equal(w, "type", typ, "snapshot")
	}},
	{"a value with a line break is nobody's own, and forges nothing", func(w *world) {
		name := w.fs("v", "tarn:name=x")
		w.fs("w", "tarn:name=y")
		w.must(w.admin.Put(name, "org.example:note", "two\nlines"))
		d := w.get(name)
		value, _ := d.Local("tarn:name")
		equal(w, "tarn:name", value, "x")
		equal(w, "unmarked", d.Unmarked(), false)
		children, err := w.Children(w.Context(), w.parent)
		w.works(err)
		equal(w, "children", len(children), 2)
	}},
}
