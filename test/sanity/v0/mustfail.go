package sanityv0

import (
	"slices"
	"strings"
	"testing"
)

// MustFail runs the suite on a plugin with a deliberate fault and fails the test
// unless the named check fails. What else failed is logged: a fault may be seen
// by several checks. Keep Options.Timeout and Options.RetryFor short, since a
// faulty plugin may let calls wait.
func MustFail(t testing.TB, o Options, check string) *Report {
	t.Helper()
	if !slices.ContainsFunc(Checks(), func(ck Check) bool { return ck.Name == check }) {
		t.Fatalf("there is no check %q", check)
	}
	r, err := Execute(t.Context(), o, nil)
	if err != nil {
		t.Fatalf("sanity: %v", err)
	}
	failed := r.Names(Failed)
	if !slices.Contains(failed, check) {
		t.Errorf("the check %s does not see the fault; failed are: %s\n%s", check, strings.Join(failed, ", "), r.Summary())
		return r
	}
	for _, res := range r.Results {
		if res.Check.Name == check {
			t.Logf("%s", res)
		}
	}
	t.Logf("all that failed: %s", strings.Join(failed, ", "))
	return r
}
