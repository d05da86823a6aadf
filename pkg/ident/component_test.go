package ident

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anyName draws what an orchestrator might send: ordinary names, long ones,
// names that look like mapped ones, and bytes of any kind.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`pvc-[0-9a-f]{8}-[0-9a-f]{4}`),
		rapid.StringMatching(`[A-Za-z0-9_.-]{1,60}`),
		rapid.StringMatching(`[a-z]{1,23}\.[0-9a-f]{24}`),
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.StringMatching(`[a-z]{100,150}`), strings.ToUpper),
	)
}

func TestComponentIsBoundedSafeAndTheSameAtEachReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := anyName().Draw(t, "name")
		c := Component(name)
		if c == "" || len(c) > MaxComponent || !componentPattern.MatchString(c) {
			t.Fatalf("Component(%q) is %q", name, c)
		}
		if again := Component(name); again != c {
			t.Fatalf("Component(%q) is %q and then %q", name, c, again)
		}
		id := VolumeID{Pool: strings.Repeat("p", MaxPoolName), Component: c}
		if back, err := ParseVolumeID(id.String()); err != nil || back != id {
			t.Fatalf("%s parses to %v, %v", id, back, err)
		}
		// A snapshot's id holds the volume's and one more component.
		if n := len(id.String() + "@" + c); n > 128 {
			t.Fatalf("a snapshot id has %d bytes", n)
		}
	})
}

func TestDistinctNamesNeverShareAComponent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyName().Draw(t, "a")
		// Neighbours that a careless mapping would fold together.
		b := rapid.OneOf(
			anyName(),
			rapid.SampledFrom([]string{
				Component(a), Component(Component(a)), strings.ToUpper(a), strings.ToLower(a), strings.TrimSpace(a),
				a + " ", a + "-", a + ".", "-" + a, strings.ReplaceAll(a, "_", "-"), strings.ReplaceAll(a, ".", "-"),
			}),
		).Draw(t, "b")
		if a != b && Component(a) == Component(b) {
			t.Fatalf("%q and %q share the component %q", a, b, Component(a))
		}
	})
}

func TestC04LongNamesAreMappedToABoundedForm(t *testing.T) {
	long := strings.Repeat("a", 127)
	names := []string{strings.Repeat("b", 49), strings.Repeat("b", 65), long + "x", long + "y", strings.Repeat("ä", 64)}
	seen := map[string]string{}
	for _, name := range names {
		c := Component(name)
		if len(c) > MaxComponent || !mappedPattern.MatchString(c) {
			t.Errorf("%q becomes %q (%d bytes)", name, c, len(c))
		}
		if other, taken := seen[c]; taken {
			t.Errorf("%q and %q share %q", name, other, c)
		}
		seen[c] = name
	}
	if got := Component(strings.Repeat("b", MaxComponent)); got != strings.Repeat("b", MaxComponent) {
		t.Errorf("a safe name of the longest length becomes %q", got)
	}
}

func TestC05NamesThatDifferOnlyInCaseAreTwo(t *testing.T) {
	if a, b := Component("PVC-ABC01"), Component("pvc-abc01"); a != "PVC-ABC01" || b != "pvc-abc01" {
		t.Errorf("got %q and %q", a, b)
	}
}

// A replay after an upgrade must find the volume, so recorded mappings hold for ever.
func TestC53RecordedNamesKeepTheirComponents(t *testing.T) {
	for _, line := range recorded(t, "components") {
		quoted, want, _ := strings.Cut(line, "\t")
		name, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := Component(name); got != want {
			t.Errorf("Component(%s) is %q, recorded %q", quoted, got, want)
		}
	}
}

// recorded returns the lines of a file of names and ids that earlier builds
// made. Lines may be added and never changed.
func recorded(t *testing.T, name string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Fatalf("testdata/%s is empty", name)
	}
	return lines
}
