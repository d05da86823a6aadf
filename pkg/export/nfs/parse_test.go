package nfs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/octal"
)

// Lines of nfs-utils 2.6.2, word for word.
const (
	tableLine = `/srv/a\040b	127.0.0.1(rw,sync,wdelay,hide,nocrossmnt,secure,no_root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,mountpoint,anonuid=65534,anongid=65534,sec=sys,rw,secure,no_root_squash,no_all_squash)`
	tableRO   = `/srv/c	2001:db8::12(ro,sync,wdelay,hide,nocrossmnt,secure,root_squash,all_squash,no_subtree_check,secure_locks,acl,no_pnfs,mountpoint,anonuid=-2,anongid=1000,sec=sys,ro,secure,root_squash,all_squash)`
	tableHand = `/srv/c	*(rw,sync,wdelay,hide,crossmnt,insecure,root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,fsid=7,anonuid=65534,anongid=65534,sec=sys,rw,insecure,root_squash,no_all_squash)`
)

func TestParseEtab(t *testing.T) {
	table := parseEtab(tableLine + "\n" + tableRO + "\n" + tableHand + "\nno line\n/srv/d\t192.0.2.1(rw\n")
	if len(table) != 2 {
		t.Fatalf("%v", table)
	}
	none := optionsFor(export.Squash{Mode: "none", AnonUID: 65534, AnonGID: 65534}, false)
	if got := table["/srv/a b"]["127.0.0.1"]; got != none {
		t.Error(cmp.Diff(none, got, cmp.AllowUnexported(options{})))
	}
	all := optionsFor(export.Squash{Mode: "all", AnonUID: 4294967294, AnonGID: 1000}, true)
	if got := table["/srv/c"]["2001:db8::12"]; got != all {
		t.Error(cmp.Diff(all, got, cmp.AllowUnexported(options{})))
	}
	if got := table["/srv/c"]["*"]; got.beyond != "crossmnt,insecure,fsid=7" {
		t.Errorf("%+v", got)
	}
	if got := table.above("/srv/c/volume"); !cmp.Equal(got, []string{"*:/srv/c"}) {
		t.Errorf("above: %q", got)
	}
	if got := append(table.above("/srv/c"), table.above("/srv/cc")...); len(got) > 0 {
		t.Errorf("above: %q", got)
	}
}

// What we write is what we read, from our file and from the table.
func TestOptionsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := optionsFor(export.Squash{
			Mode:    rapid.SampledFrom([]string{"", "none", "root", "all"}).Draw(t, "mode"),
			AnonUID: rapid.Uint32().Draw(t, "uid"), AnonGID: rapid.Uint32().Draw(t, "gid"),
		}, rapid.Bool().Draw(t, "readonly"))
		if got := parseOptions(o.String()); got != o {
			t.Fatal(cmp.Diff(o, got, cmp.AllowUnexported(options{})))
		}
	})
}

func TestFilesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := exportFile{id: "pool/v", source: "/" + rapid.StringMatching(`[ -~äß]{1,8}(/[ -~]{1,8})?`).Filter(func(s string) bool {
			return checkPath("/"+s) == nil
		}).Draw(t, "path")}
		for _, a := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"192.0.2.1", "2001:db8::1", "::1"}), rapid.ID[string]).Draw(t, "clients") {
			f.clients = append(f.clients, client{addr: netip.MustParseAddr(a), options: optionsFor(export.Squash{}, rapid.Bool().Draw(t, "readonly"))})
		}
		got := parseFile(f.String())
		if got.source != f.source || len(got.clients) != len(f.clients) {
			t.Fatalf("%q became %+v", f.String(), got)
		}
		for i := range f.clients {
			if got.clients[i] != f.clients[i] {
				t.Fatalf("%q became %+v", f.String(), got)
			}
		}
	})
}

func FuzzParseEtab(f *testing.F) {
	f.Add(tableLine + "\n" + tableRO)
	f.Add(tableHand)
	f.Add("/a\t*(")
	f.Add(`/a\04` + "\t*(rw)\n" + `\` + "\t(ro)")
	f.Fuzz(func(t *testing.T, raw string) {
		table := parseEtab(raw)
		for source, hosts := range table {
			// Whatever is granted beyond what is wanted has to be seen.
			add, drop := table.difference(source, nil)
			if len(add) > 0 || len(drop) != len(hosts) {
				t.Errorf("%q: %d clients, %d to drop", source, len(hosts), len(drop))
			}
		}
		if !strings.Contains(raw, "(") && len(table) > 0 {
			t.Error("clients came from nothing")
		}
	})
}

func FuzzParseFile(f *testing.F) {
	f.Add("# volume p/v, kept by tarn\n/srv/a\\040b 192.0.2.1(rw,sync)\n")
	f.Add("# closing /srv/c\n")
	f.Add("/a *(rw) 192.0.2.1( ::1\n\\")
	f.Fuzz(func(t *testing.T, raw string) {
		got := parseFile(raw)
		for _, c := range got.clients {
			if !c.addr.IsValid() {
				t.Errorf("an invalid client from %q", raw)
			}
		}
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("/a b")
	f.Add(`/\040`)
	f.Fuzz(func(t *testing.T, path string) {
		e := escape(path)
		if octal.Unescape(e) != path {
			t.Errorf("%q became %q and then %q", path, e, octal.Unescape(e))
		}
		if strings.ContainsAny(e, " \t\n#\"()") {
			t.Errorf("%q is more than one word of exports(5)", e)
		}
	})
}
