package sanityv0

import (
	"strings"
	"testing"
)

// Judge makes a result a subtest. leftOut are the checks, by a part of the
// reason that they give, that say nothing about a set-up, and why; any other
// check that was skipped fails.
func (r Result) Judge(t *testing.T, leftOut map[string]string) {
	t.Helper()
	t.Run(r.Check.Name, func(t *testing.T) {
		text := strings.Join(r.Messages, "\n")
		switch r.State {
		case Failed:
			t.Errorf("[%s] %s", r.Check.Section, text)
		case Skipped:
			for reason, why := range leftOut {
				if strings.Contains(text, reason) {
					t.Skipf("%s: %s", text, why)
				}
			}
			t.Errorf("left out: %s", text)
		}
	})
}
