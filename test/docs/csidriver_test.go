package docs

import (
	"regexp"
	"slices"
	"testing"
)

// Each field of the table has a test of what the driver does when it is set.
func TestEveryFieldOfTheCSIDriverHasATest(t *testing.T) {
	names := func(file, pattern string) (list []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return list
	}
	fields := names("docs/csidriver.md", "(?m)^\\| `(\\w+)` \\|")
	tests := names("test/inprocess/csidriver_test.go", `t\.Run\("(\w+)"`)
	if len(fields) < 11 || !slices.Equal(fields, tests) {
		t.Errorf("the fields are\n%q, the tests\n%q", fields, tests)
	}
}
