//go:build faults || (guest && long)

package steps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
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
// too where they are the same each time. Where they are not, uses are counted one
// after the other, and nothing is said of the others.
func (c counts) compare(t *testing.T, file string, exactly bool) {
	t.Helper()
	update := os.Getenv(UpdateVariable) != ""
	listed, err := readCounts(file)
	if err != nil && !(update && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	counted := map[string]bool{}
	for name := range c {
		counted[useOf(name)] = true
	}
	if update {
		for name, n := range listed {
			if !counted[useOf(name)] {
				c[name] = n
			}
		}
		if err := os.WriteFile(file, []byte(c.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, want := range listed {
		if got := c[name]; got < want && counted[useOf(name)] || exactly && got != want {
			t.Errorf("%s has %d steps, want %d as %s says (with %s=1 it is written anew)", name, got, want, file, UpdateVariable)
		}
	}
	for name := range c {
		if _, ok := listed[name]; !ok {
			t.Errorf("%s does not name %q", file, name)
		}
	}
}

func useOf(name string) string {
	use, _, _ := strings.Cut(name, ": ")
	return use
}

// readCounts reads what String has written.
func readCounts(file string) (counts, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := counts{}
	for line := range strings.Lines(string(raw)) {
		count, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		if name != "in all" {
			c[name] = n
		}
	}
	return c, nil
}
