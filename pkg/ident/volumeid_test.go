package ident

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// foreign are ids that could not be ours, C55's among them.
var foreign = []string{
	"../victim", "tank/csi/../victim", "pvc-1/../../etc", "/etc", "-r", "pvc-1 -R", "pvc-1@snap",
	"tank", "tank/", "/pvc-1", "tank//pvc-1", "tank/..", "tank/.", "tank/.hidden", "tank/-r", "tank/_x", "tank/a/b",
	"tank/pvc 1", "tank/pvc-1 ", " tank/pvc-1", "tank/pvc-1\n", "tank/pvc-1\x00", "tank/pvc%1", "tank/pvc-1@snap", "tank/pvc#1",
	"tank/pvc:1", "tank/pvc,1", "tank/pvc=1", `tank/pvc"1`, "tank/pvc'1", "tank/pvc$1", "tank/pvc*", `tank/pvc\1`, "tank/pvc\xff",
	"tank/pvc-ä", "tank/\u212A8s", "Tank/pvc-1", "-tank/pvc-1", "tank-/pvc-1", "ta.nk/pvc-1", "ta nk/pvc-1",
	strings.Repeat("p", MaxPoolName+1) + "/pvc-1", "tank/" + strings.Repeat("a", MaxComponent+1), strings.Repeat("x", 4096),
}

func TestC55ForeignVolumeIDsNameNothing(t *testing.T) {
	if _, err := ParseVolumeID(""); !errors.Is(err, fault.Invalid) {
		t.Errorf("empty: %v", err)
	}
	for _, s := range foreign {
		id, err := ParseVolumeID(s)
		if fault.Kind(err) != fault.NotFound || id != (VolumeID{}) {
			t.Errorf("%q: %v, %v", s, id, err)
		}
		checkMessage(t, err)
	}
}

func TestC53RecordedVolumeIDsParse(t *testing.T) {
	for _, line := range recorded(t, "volume-ids") {
		id, err := ParseVolumeID(line)
		if err != nil || id.String() != line {
			t.Errorf("%q parses to %v, %v", line, id, err)
		}
	}
}

func FuzzParseVolumeID(f *testing.F) {
	for _, s := range foreign {
		f.Add(s)
	}
	f.Add("tank/pvc-1")
	f.Add("t/" + Component("a name that is mapped"))
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseVolumeID(s)
		if err != nil {
			checkMessage(t, err)
			return
		}
		if id.String() != s {
			t.Errorf("%q parses to %q", s, id)
		}
		if len(s) > 128 || strings.Count(s, "/") != 1 || strings.ContainsAny(s, "@%#, \t\n\x00\"'\\=:") ||
			strings.HasPrefix(s, "-") || strings.Contains(s, "/.") || strings.Contains(s, "/-") {
			t.Errorf("%q parses", s)
		}
	})
}

func TestUUIDsAndPoolNames(t *testing.T) {
	const uuid = "0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		check func(string) bool
		good  []string
		bad   []string
	}{
		{ValidUUID, []string{uuid}, []string{"", uuid[1:], uuid + "0", strings.ToUpper(uuid), uuid + "\n", "../" + uuid[3:]}},
		{ValidPool, []string{"t", "tank", "tank-2", "tank_2", strings.Repeat("p", MaxPoolName)},
			[]string{"", "-t", "t-", "T", "a.b", "a/b", "a b", "tank\n", strings.Repeat("p", MaxPoolName+1)}},
	} {
		for _, s := range c.good {
			if !c.check(s) {
				t.Errorf("%q is refused", s)
			}
		}
		for _, s := range c.bad {
			if c.check(s) {
				t.Errorf("%q is taken", s)
			}
		}
	}
}

func TestPrintableIsBoundedAndHoldsNoControlCharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), anyName()).Draw(t, "s")
		p := Printable(s)
		if len(p) > 150 || !utf8.ValidString(p) {
			t.Fatalf("Printable(%q) is %q", s, p)
		}
		for _, r := range p {
			if !unicode.IsPrint(r) {
				t.Fatalf("Printable(%q) holds %U", s, r)
			}
		}
	})
	for in, want := range map[string]string{
		"pvc-ä": "pvc-ä", "a\nb": "a?b", "a\x1b[31m": "a?[31m", "a\u0085b": "a?b", "a\u202eb": "a?b",
		strings.Repeat("a", 141): strings.Repeat("a", 140) + "...",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) is %q, want %q", in, got, want)
		}
	}
}

// checkMessage fails if an error carries raw foreign text into a log or status.
func checkMessage(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 700 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("the message is too long or holds raw text: %q", text)
	}
}
