package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// caseNumbers are all cases; numbers have gaps.
var caseNumbers = []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29,
	31, 32, 34, 35, 37, 38, 40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59}

var caseRow = regexp.MustCompile("(?m)^\\| (C\\d\\d) \\| [^|]+ \\| [^|]+ \\| `(Test\\w+)` \\| (\\S+) \\| (guest|unit) \\|$")

// Every case has a row with a test that is named after it, each test exists, and
// runs where the row says.
func TestEveryCaseHasATest(t *testing.T) {
	text := read(t, "docs/cases.md")
	named := map[string]bool{}
	rows := caseRow.FindAllStringSubmatch(text, -1)
	if lines := strings.Count(text, "\n| C"); lines != len(rows) {
		t.Errorf("%d of %d rows can be read", len(rows), lines)
	}
	for _, row := range rows {
		number, test, folder, where := row[1], row[2], row[3], row[4]
		named[number] = named[number] || strings.Contains(test, number)
		found := whereTest(t, folder, test)
		if found == "" {
			t.Errorf("%s: %s has no %s", number, folder, test)
		} else if found != where {
			t.Errorf("%s: %s is a test of the %s, not of the %s", number, test, found, where)
		}
	}
	for _, n := range caseNumbers {
		if number := fmt.Sprintf("C%02d", n); !named[number] {
			t.Errorf("no test is named after %s", number)
		}
		delete(named, fmt.Sprintf("C%02d", n))
	}
	if len(named) > 0 {
		t.Errorf("there are no such cases: %v", named)
	}
}

// Every test of test/faults that is named after a case is in the table.
func TestEveryTestOfACaseIsListed(t *testing.T) {
	text := read(t, "docs/cases.md")
	for _, name := range testsIn(t, "test/faults", `TestC\d\d\w+`) {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s is not in docs/cases.md", name)
		}
	}
}

// testsIn are the tests of a folder whose names match.
func testsIn(t *testing.T, folder, names string) (list []string) {
	t.Helper()
	for _, file := range testFiles(t, folder) {
		for _, m := range regexp.MustCompile(`(?m)^func (`+names+`)\(t \*testing\.T\)`).FindAllStringSubmatch(read(t, file), -1) {
			list = append(list, m[1])
		}
	}
	return list
}

// whereTest tells where a folder's test runs, or "".
func whereTest(t *testing.T, folder, test string) string {
	t.Helper()
	for _, file := range testFiles(t, folder) {
		text := read(t, file)
		if !regexp.MustCompile(`(?m)^func ` + test + `\(t \*testing\.T\)`).MatchString(text) {
			continue
		}
		if strings.HasPrefix(text, "//go:build guest\n") {
			return "guest"
		}
		return "unit"
	}
	return ""
}

func testFiles(t *testing.T, folder string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "_test.go") {
			list = append(list, filepath.Join(folder, e.Name()))
		}
	}
	slices.Sort(list)
	return list
}
