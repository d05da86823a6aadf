package zfs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func anything(string) bool { return true }

func TestParseGet(t *testing.T) {
	out := "tank/csi/v\tused\t98304\t-\n" +
		"tank/csi/v\tquota\tnone\tdefault\n" +
		"tank/csi/v\torigin\t-\t-\n" +
		"tank/csi/v\tmountpoint\t/tank/csi/v\tinherited from tank\n" +
		"tank/csi/v\ttarn:empty\t\tlocal\n" +
		"tank/csi/w x\trefquota\t1048576\tlocal\n"
	list, doubtful := parseGet(out, anything)
	if doubtful || len(list) != 2 || list[0].Name != "tank/csi/v" || list[1].Name != "tank/csi/w x" {
		t.Fatalf("doubtful %t: %v", doubtful, list)
	}
	d := list[0]
	if d.Bytes("used") != 98304 || d.Bytes("quota") != 0 || d.Bytes("origin") != 0 || d.Bytes("missing") != 0 {
		t.Errorf("numbers: %v", d)
	}
	if _, ok := d.Value("origin"); ok {
		t.Error("a dash is a value")
	}
	if v, ok := d.Own("tarn:empty"); !ok || v != "" {
		t.Errorf("an empty value is %q, %t", v, ok)
	}
	if p := d.properties["mountpoint"]; p != (Property{"/tank/csi/v", "inherited"}) {
		t.Errorf("mountpoint: %v", p)
	}
}

// C14: what no zfs prints, or not this one, takes nothing else down.
func TestParseGetOddLines(t *testing.T) {
	for name, odd := range map[string]string{
		"an extra column":      "tank/csi/v\torigin\t-\t-\t-",
		"a column less":        "tank/csi/v\torigin\t-",
		"an empty line":        "",
		"another dataset":      "tank/other\torigin\t-\t-",
		"an unknown source":    "tank/csi/v\torigin\t-\telsewhere",
		"an empty last column": "tank/csi/v\torigin\t-\t",
		"a property twice":     "tank/csi/v\tused\t1\t-",
		"a received one":       "tank/csi/v\ttarn:x\t1\treceived",
	} {
		t.Run(name, func(t *testing.T) {
			out := "tank/csi/v\tused\t98304\t-\n" + odd + "\n" + "tank/csi/v\ttarn:name\tx\tlocal\n"
			if _, doubtful := parseGet(out, func(d string) bool { return d == "tank/csi/v" }); !doubtful {
				t.Error("it is taken as it is")
			}
			list := parseDoubtful(out, "tank/csi/v\tused\t-\ntank/csi/v\ttarn:name\tlocal\n")
			if len(list) != 1 {
				t.Fatalf("%v", list)
			}
			if v, _ := list[0].Local("tarn:name"); v != "x" {
				t.Errorf("tarn:name is %q", v)
			}
		})
	}
}

// A value with line breaks cannot add a property, change the source of one, or
// give one another value.
func TestForgedLines(t *testing.T) {
	const truth = "tank/csi/v\ttarn:name\treceived\n" +
		"tank/csi/v\torg:note\treceived\n" +
		"tank/csi/v\ttarn:node.a\tlocal\n" +
		"tank/csi/w\ttarn:name\tlocal\n"
	listing := func(note string) string {
		return "tank/csi/v\ttarn:name\tx\treceived\n" +
			"tank/csi/v\torg:note\t" + note + "\treceived\n" +
			"tank/csi/v\ttarn:node.a\t1\tlocal\n" +
			"tank/csi/w\ttarn:name\ty\tlocal\n"
	}
	for name, note := range map[string]string{
		"none":                             "plain",
		"a publication":                    "x\treceived\ntank/csi/v\ttarn:node.evil\t1\tlocal\ntank/csi/v\tfoo:bar\tz",
		"a publication of another volume":  "x\treceived\ntank/csi/w\ttarn:node.evil\t1\tlocal\ntank/csi/v\tfoo:bar\tz",
		"a second value":                   "x\treceived\ntank/csi/v\ttarn:node.a\tevil\tlocal\ntank/csi/v\tfoo:bar\tz",
		"its own source":                   "x\tlocal\nrest",
		"another name of the same dataset": "x\tlocal\ntank/csi/w\ttarn:name\tevil\tlocal\nrest",
	} {
		t.Run(name, func(t *testing.T) {
			out := listing(note)
			if _, doubtful := parseGet(out, anything); !doubtful {
				t.Fatal("it is taken as it is")
			}
			var kept strings.Builder
			for _, d := range parseDoubtful(out, truth) {
				for _, property := range []string{"tarn:name", "tarn:node.a", "tarn:node.evil", "org:note"} {
					if v, ok := d.Local(property); ok {
						kept.WriteString(d.Name + " " + property + "=" + v + "\n")
					}
				}
			}
			want := "tank/csi/v tarn:node.a=1\ntank/csi/w tarn:name=y\n"
			for line := range strings.Lines(kept.String()) {
				if !strings.Contains(want, line) {
					t.Errorf("forged: %s", line)
				}
			}
		})
	}
}

func TestUnreadableIsNeitherOwnNorUnmarked(t *testing.T) {
	list := parseDoubtful("tank/v\ttarn:name\ttwo\nlines\tlocal\n", "tank/v\ttarn:name\tlocal\n")
	if len(list) != 1 {
		t.Fatal(list)
	}
	if _, ok := list[0].Own("tarn:name"); ok {
		t.Error("half a value is taken for the whole")
	}
	if _, ok := list[0].Value("tarn:name"); ok {
		t.Error("it has a value")
	}
	if list[0].Unmarked() {
		t.Error("the dataset counts as unmarked")
	}
}

// Whatever values hold, what is reported is a subset of the truth.
func FuzzParse(f *testing.F) {
	f.Add("v", "w")
	f.Add("x\tlocal\ntank/a\tb:c\td\tlocal\ne", "")
	f.Add("x\treceived\ntank/b\tp:local\tevil\tlocal\ntank/b\tz:z", "y")
	f.Add("\n\t\n", "\x00\xff")
	f.Fuzz(func(t *testing.T, received, local string) {
		if strings.ContainsAny(local, "\n\t") {
			t.Skip("our own values hold neither")
		}
		type prop struct{ dataset, name, value, source string }
		all := []prop{
			{"tank/a", "p:received", received, "received"},
			{"tank/a", "p:local", local, "local"},
			{"tank/b", "p:local", local, "local"},
			{"tank/b", "used", "1", "-"},
		}
		var out, truth strings.Builder
		want := map[string]string{}
		for _, p := range all {
			out.WriteString(p.dataset + "\t" + p.name + "\t" + p.value + "\t" + p.source + "\n")
			truth.WriteString(p.dataset + "\t" + p.name + "\t" + p.source + "\n")
			if p.source == "local" {
				want[p.dataset+" "+p.name] = p.value
			}
		}
		if _, doubtful := parseGet(out.String(), anything); !doubtful {
			t.Fatal("a received value is not doubted")
		}
		clean := !strings.Contains(received, "\n")
		got := map[string]string{}
		for _, d := range parseDoubtful(out.String(), truth.String()) {
			for name, p := range d.properties {
				if p.Source == "local" {
					got[d.Name+" "+name] = p.Value
				}
			}
		}
		for k, v := range got {
			if w, ok := want[k]; !ok || w != v {
				t.Errorf("%s is %q, and is not so", k, v)
			}
		}
		if clean && !cmp.Equal(got, want) {
			t.Errorf("without line breaks: %s", cmp.Diff(want, got))
		}
	})
}
