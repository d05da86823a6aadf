//go:build faults || (guest && long)

package steps

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// UpdateVariable makes the counts that are found the expected ones.
const UpdateVariable = "TARN_STEPS_UPDATE"

// counts is how many steps each call has, by "use: call".
type counts map[string]int

func (c counts) add(u Use, r Report) {
	for name, steps := range r.Steps {
		c[u.Name+": "+name] = len(steps)
	}
}

func (c counts) String() string {
	var lines []string
	sum := 0
	for name, n := range c {
		lines = append(lines, fmt.Sprintf("%3d %s\n", n, name))
		sum += n
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[4:], b[4:]) })
	return strings.Join(lines, "") + fmt.Sprintf("%3d in all\n", sum)
}

// compare fails the test when a call has fewer steps than the file says, or has
// none: then some are not seen any more, and are not tried. More are a failure
// too where they are the same each time.
func (c counts) compare(t *testing.T, file string, exactly bool) {
	t.Helper()
	if os.Getenv(UpdateVariable) != "" {
		if err := os.WriteFile(file, []byte(c.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var want int
		name := strings.TrimSpace(line[4:])
		if _, err := fmt.Sscan(line, &want); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		if name == "in all" {
			continue
		}
		if got, ok := c[name]; !ok || got < want || exactly && got != want {
			t.Errorf("%s has %d steps, want %d as %s says (with %s=1 it is written anew)", name, got, want, file, UpdateVariable)
		}
		delete(c, name)
	}
	for name := range c {
		t.Errorf("%s does not name %q", file, name)
	}
}
