package nfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
)

var exportRules = []rule{
	{"publish takes one child, a replay none, unpublish one", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 1)
		w.granted(v.Source, "192.0.2.1")
		for _, word := range []string{"rw", "sync", "no_subtree_check", "mountpoint", "sec=sys", "no_root_squash", "no_all_squash"} {
			equal(w, word, strings.Contains(w.table(v.Source)["192.0.2.1"], ","+word+","), true)
		}
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 0)
		st, _ := w.status(uuidA)
		equal(w, "status", fmt.Sprint(st), fmt.Sprint(export.Status{UUID: uuidA, Complete: true, Clients: []string{"192.0.2.1"}}))
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), w.volume(uuidA))) }), 1)
		w.granted(v.Source)
		equal(w, "files", w.files(), 0)
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), w.volume(uuidA))) }), 0)
	}},
	{"a second node takes one child, and its end one", func(w *world) {
		w.works(w.Ensure(w.Context(), w.volume(uuidA, "192.0.2.1")))
		v := w.volume(uuidA, "192.0.2.1", "ro 192.0.2.2")
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 1)
		w.granted(v.Source, "192.0.2.1", "192.0.2.2")
		equal(w, "second is read-only", strings.HasPrefix(w.table(v.Source)["192.0.2.2"], ",ro,"), true)
		equal(w, "first is not", strings.HasPrefix(w.table(v.Source)["192.0.2.1"], ",rw,"), true)
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), w.volume(uuidA, "192.0.2.1"))) }), 1)
		w.granted(v.Source, "192.0.2.1")
	}},
	{"changed options replace the old ones", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		v.Grants[0].ReadOnly = true
		v.Squash = export.Squash{Mode: "all", AnonUID: 4294967294, AnonGID: 1000}
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 1)
		opts := w.table(v.Source)["192.0.2.1"]
		for _, word := range []string{"ro", "all_squash", "root_squash", "anonuid=-2", "anongid=1000"} {
			equal(w, word+" in "+opts, strings.Contains(opts, ","+word+","), true)
		}
		equal(w, "writable", strings.Contains(opts, ",rw,"), false)
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 0)
		v.Squash = export.Squash{Mode: "root", AnonUID: 65534, AnonGID: 65534}
		w.works(w.Ensure(w.Context(), v))
		equal(w, "no_all_squash", strings.Contains(w.table(v.Source)["192.0.2.1"], ",root_squash,no_all_squash,"), true)
	}},
	{"IPv6, and both families of one node", func(w *world) { // C19
		v := w.volume(uuidA, "192.0.2.1 2001:db8:7::12", "::1")
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 1)
		w.granted(v.Source, "192.0.2.1", "2001:db8:7::12", "::1")
		w.exportAll()
		w.granted(v.Source, "192.0.2.1", "2001:db8:7::12", "::1")
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 0)
		w.works(w.Ensure(w.Context(), w.volume(uuidA, "::1")))
		w.granted(v.Source, "::1")
		w.works(w.Remove(w.Context(), uuidA))
		w.granted(v.Source)
	}},
	{"one of two addresses with the same name", func(w *world) {
		w.works(w.Ensure(w.Context(), w.volume(uuidA, "127.0.0.1 ::1"))) // both are localhost
		v := w.volume(uuidA, "::1")
		w.works(w.Ensure(w.Context(), v))
		w.granted(v.Source, "::1")
		w.works(w.Ensure(w.Context(), w.volume(uuidA, "ro 127.0.0.1", "::1")))
		w.granted(v.Source, "127.0.0.1", "::1")
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), w.volume(uuidA))) }), 1)
		w.granted(v.Source)
	}},
	{"paths that cannot be exported", func(w *world) {
		for _, path := range []string{"", "/", "relative", "/a/../b", "/a/", "/a\nb", "/a//b"} {
			v := w.volume(uuidA, "192.0.2.1")
			v.Source = path
			w.fails(w.Ensure(w.Context(), v), fault.Precondition)
		}
		equal(w, "children", len(w.runner.lines), 0)
		equal(w, "files", w.files(), 0)
	}},
	{"odd paths", func(w *world) {
		var list []export.Volume
		for i, name := range []string{"blank in it", "hash#", "quote\"", "back\\slash", "(paren)", "comma,", "star*", "ümlaut", "a:b", "-o"} {
			v := w.volume(fmt.Sprintf("%04d%s", i, uuidA[4:]), "192.0.2.1")
			v.Source = filepath.Join(w.dir, name)
			w.must(os.MkdirAll(v.Source, 0o755))
			list = append(list, v)
		}
		w.together(list, func(v export.Volume) error { return w.Ensure(w.Context(), v) })
		w.exportAll()
		for _, v := range list {
			equal(w, "children after exportfs -ra for "+v.Source, w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 0)
		}
		w.together(list, func(v export.Volume) error { return w.Remove(w.Context(), v.UUID) })
		for _, v := range list {
			_, listed := w.status(v.UUID)
			equal(w, "listed", listed, false)
		}
	}},
	{"the export survives exportfs -ra", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1", "ro 192.0.2.2")
		w.works(w.Ensure(w.Context(), v))
		w.exportAll()
		w.granted(v.Source, "192.0.2.1", "192.0.2.2")
		equal(w, "children", w.runner.children(func() { w.works(w.Ensure(w.Context(), v)) }), 0)
		w.works(w.Remove(w.Context(), uuidA))
		w.exportAll()
		w.granted(v.Source)
	}},
	{"two instances keep apart", func(w *world) {
		other := w.exporter("other.example")
		a, b := w.volume(uuidA, "192.0.2.1"), w.volume(uuidB, "192.0.2.1")
		w.works(w.Ensure(w.Context(), a))
		w.works(other.Ensure(w.Context(), b))
		list, err := w.List(w.Context())
		w.works(err)
		equal(w, "listed", len(list), 1)
		w.works(w.Remove(w.Context(), uuidB))
		w.granted(b.Source, "192.0.2.1")
		w.works(other.Remove(w.Context(), uuidA))
		w.granted(a.Source, "192.0.2.1")
		w.works(other.Remove(w.Context(), uuidB))
		w.granted(b.Source)
		w.granted(a.Source, "192.0.2.1")
	}},
	{"a volume that moves takes its export along", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		old := v.Source
		v.Source = filepath.Join(w.dir, "moved")
		w.must(os.MkdirAll(v.Source, 0o755))
		w.works(w.Ensure(w.Context(), v))
		w.granted(old)
		w.granted(v.Source, "192.0.2.1")
		v.Grants = nil
		v.Source = filepath.Join(w.dir, "moved again")
		w.works(w.Ensure(w.Context(), v))
		w.granted(filepath.Join(w.dir, "moved"))
		equal(w, "files", w.files(), 0)
	}},
	{"remove of what never was", func(w *world) {
		equal(w, "children", w.runner.children(func() { w.works(w.Remove(w.Context(), uuidA)) }), 0)
		list, err := w.List(w.Context())
		w.works(err)
		equal(w, "listed", len(list), 0)
	}},
}

var repairRules = []rule{
	{"an entry for everybody made by hand is removed", func(w *world) { // C19
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		w.must(w.host.ByHand("-o", "rw,no_subtree_check", "*:"+v.Source, "192.0.2.0/24:"+v.Source, "[2001:db8::]/64:"+v.Source, "[2001:db8::0:1]:"+v.Source))
		st, _ := w.status(uuidA)
		equal(w, "complete", st.Complete, false)
		equal(w, "everybody is listed", slices.Contains(st.Clients, "*"), true)
		w.works(w.Ensure(w.Context(), v))
		w.granted(v.Source, "192.0.2.1")
		w.must(w.host.ByHand("-o", "rw,no_subtree_check", "*:"+v.Source))
		v.Grants = nil
		w.works(w.Ensure(w.Context(), v))
		w.granted(v.Source)
		w.must(w.host.ByHand("-o", "rw,no_subtree_check", "*:"+v.Source))
		w.works(w.Ensure(w.Context(), v)) // as before a delete
		w.granted(v.Source)
	}},
	{"an entry for everybody in a file of the host is an error", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		line := strings.ReplaceAll(v.Source, " ", `\040`) + " *(rw,no_subtree_check)\n"
		w.must(os.WriteFile(w.host.Exports(), []byte(line), 0o644))
		w.Cleanup(func() { _ = os.WriteFile(w.host.Exports(), nil, 0o644) })
		w.exportAll()
		w.fails(w.Ensure(w.Context(), v), fault.Precondition)
		w.must(os.WriteFile(w.host.Exports(), nil, 0o644))
		w.works(w.Ensure(w.Context(), v))
		w.granted(v.Source, "192.0.2.1")
	}},
	{"more than was granted is taken back", func(w *world) {
		v := w.volume(uuidA, "ro 192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		for _, opts := range []string{"rw", "ro,crossmnt", "ro,insecure", "ro,fsid=7", "ro,async", "ro,no_root_squash", "ro,anonuid=0", "ro,subtree_check", "ro,nohide"} {
			full := "no_subtree_check,mountpoint,sec=sys,no_root_squash,anonuid=65534," + opts
			if opts == "ro,no_root_squash" {
				full = "no_subtree_check,mountpoint,sec=sys,root_squash,ro"
			}
			w.must(w.host.ByHand("-o", full, "192.0.2.1:"+v.Source))
			st, _ := w.status(uuidA)
			equal(w, "complete with "+opts, st.Complete, false)
			w.works(w.Ensure(w.Context(), v))
			st, _ = w.status(uuidA)
			equal(w, "complete", st.Complete, true)
			got := w.table(v.Source)["192.0.2.1"]
			equal(w, "options "+got, strings.Contains(got, "crossmnt,") && !strings.Contains(got, ",nocrossmnt,") || strings.Contains(got, "fsid") ||
				strings.Contains(got, "async") || strings.Contains(got, "insecure,") || strings.Contains(got, ",rw,"), false)
		}
	}},
	{"what somebody unexported comes back", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		w.must(w.host.ByHand("-u", "192.0.2.1:"+v.Source))
		st, _ := w.status(uuidA)
		equal(w, "complete", st.Complete, false)
		w.works(w.Ensure(w.Context(), v))
		w.granted(v.Source, "192.0.2.1")
	}},
	{"a file that somebody spoiled or removed", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		for _, text := range []string{"", "nonsense\n", "# nothing\n", "/else 192.0.2.1(rw)\n"} {
			w.works(w.Ensure(w.Context(), v))
			files, err := filepath.Glob(filepath.Join(w.host.Paths().ExportsDir, "*.exports"))
			w.must(err)
			w.must(os.WriteFile(files[0], []byte(text), 0o644))
			w.works(w.Ensure(w.Context(), v))
			w.exportAll()
			w.granted(v.Source, "192.0.2.1")
			w.must(os.WriteFile(files[0], []byte(text), 0o644))
			w.works(w.Remove(w.Context(), uuidA))
			equal(w, "files", w.files(), 0)
			w.works(w.Ensure(w.Context(), w.volume(uuidA)))
			w.granted(v.Source)
		}
		w.works(w.Ensure(w.Context(), v))
		w.must(os.RemoveAll(w.host.Paths().ExportsDir))
		w.works(w.Ensure(w.Context(), v))
		w.exportAll()
		w.granted(v.Source, "192.0.2.1")
	}},
	{"cut off after each step, the next call ends it", func(w *world) {
		states := []export.Volume{
			w.volume(uuidA, "192.0.2.1"), w.volume(uuidA, "ro 192.0.2.2", "192.0.2.3"), w.volume(uuidA, "ro 192.0.2.1", "2001:db8::1"), w.volume(uuidA),
		}
		for i, from := range states {
			for j, to := range states {
				if testing.Short() && j != (i+1)%len(states) { // each state once as the one before and once as the one after
					continue
				}
				for step := 1; step <= 3; step++ {
					w.works(w.Ensure(w.Context(), from))
					w.runner.cutAt = len(w.runner.lines) + step
					err := w.Ensure(w.Context(), to)
					w.runner.cutAt = 0
					again := w.exporter("tarn.example") // the next process
					if err == nil {
						break
					}
					w.exportAll() // a zfs command comes in between
					w.works(again.Ensure(w.Context(), to))
					w.matches(to)
				}
			}
		}
	}},
	{"cut off in Remove, the next one ends it", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		w.runner.cutAt = len(w.runner.lines) + 1
		if err := w.Remove(w.Context(), uuidA); err == nil {
			w.Fatal("a removal that was cut off succeeded")
		}
		w.runner.cutAt = 0
		_, listed := w.status(uuidA)
		equal(w, "it is still listed", listed, true)
		w.works(w.exporter("tarn.example").Remove(w.Context(), uuidA))
		w.granted(v.Source)
		equal(w, "files", w.files(), 0)
	}},
	{"an export above with crossmnt is warned of, once", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		equal(w, "warnings", strings.Count(w.log.String(), "crossmnt"), 0)
		w.must(w.host.ByHand("-o", "rw,crossmnt,no_subtree_check,fsid=0", "*:"+w.dir))
		w.works(w.Ensure(w.Context(), v))
		w.works(w.Ensure(w.Context(), v))
		equal(w, "warnings", strings.Count(w.log.String(), "level=warning"), 1)
	}},
}

// matches expects what a volume's grants say, in the table and in the list.
func (w *world) matches(v export.Volume) {
	w.Helper()
	var hosts []string
	for _, g := range v.Grants {
		for _, a := range g.Addresses {
			hosts = append(hosts, a.String())
		}
	}
	w.granted(v.Source, hosts...)
	st, listed := w.status(v.UUID)
	equal(w, "listed", listed, len(hosts) > 0)
	equal(w, "complete", st.Complete, len(hosts) > 0)
}

var serverRules = []rule{
	{"ready", func(w *world) { w.works(w.Ready(w.Context())) }},
	{"without the server nothing is said to be exported, and its return repairs itself", func(w *world) { // C20
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		w.must(w.host.StopServer())
		w.Cleanup(func() { _ = w.host.StartServer() })
		w.fails(w.Ready(w.Context()), fault.Unavailable)
		w.fails(w.Ensure(w.Context(), v), fault.Unavailable)
		st, _ := w.status(uuidA)
		equal(w, "complete", st.Complete, false)
		w.must(w.host.StartServer())
		w.must(w.host.ByHand("-u", "192.0.2.1:"+v.Source)) // a server that lost its table
		w.works(w.Ready(w.Context()))
		w.works(w.Ensure(w.Context(), v))
		w.granted(v.Source, "192.0.2.1")
	}},
	{"without the server an export can be taken down", func(w *world) {
		v := w.volume(uuidA, "192.0.2.1")
		w.works(w.Ensure(w.Context(), v))
		w.must(w.host.StopServer())
		w.Cleanup(func() { _ = w.host.StartServer() })
		w.works(w.Remove(w.Context(), uuidA))
		w.must(w.host.StartServer())
		w.granted(v.Source)
	}},
	{"without mountd it is not ready", func(w *world) {
		w.works(w.Ready(w.Context()))
		w.must(w.host.StopMountd())
		w.Cleanup(func() { _ = w.host.StartMountd() })
		w.fails(w.Ready(w.Context()), fault.Unavailable)
		w.must(w.host.StartMountd())
		w.works(w.Ready(w.Context()))
	}},
}
