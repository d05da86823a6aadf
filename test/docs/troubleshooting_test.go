package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const troubleshooting = "docs/troubleshooting.md"

// sources is the text of the driver's own Go files below a folder.
func sources(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		all.Write(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// others are messages of the kubelet, the kernel and its tools.
var others = []string{"Connection timed out", "driver name ... not found in the list of registered CSI drivers",
	"Remounting filesystem read-only", "XFS ... Shutting down"}

var code = regexp.MustCompile("`([^`]+)`")

// A message that a table quotes is one that the driver has. Values are written as
// three dots, or as an example where the driver's text has a verb.
func TestQuotedMessagesAreTheDrivers(t *testing.T) {
	text := strings.Split(sources(t, "pkg"), "\n")
	quoted := 0
	table := false
	for line := range strings.Lines(read(t, troubleshooting)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			table = false
			continue
		}
		if head := cells[1]; strings.Contains(head, "says") || strings.Contains(head, "`WHY`") || strings.Contains(head, "what is shown") {
			table = true
			continue
		}
		if !table {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			if len(strings.Fields(m[1])) < 3 || slices.Contains(others, m[1]) {
				continue
			}
			quoted++
			if !said(text, m[1]) {
				t.Errorf("no message of the driver has %q", m[1])
			}
		}
	}
	if quoted < 20 {
		t.Errorf("only %d quoted messages were found", quoted)
	}
}

// said reports whether a line of the sources has a message. One word of it may be
// an example of what a verb of the source stands for.
func said(text []string, message string) bool {
	words := strings.Fields(message)
	for example := -1; example < len(words); example++ {
		var pattern strings.Builder
		longest := ""
		for i, word := range words {
			stem := strings.TrimRight(word, ":,")
			switch {
			case strings.Contains(word, "..."):
				pattern.WriteString(`.{1,60}?`)
			case i == example:
				pattern.WriteString(`\S*%[a-z]\S*` + word[len(stem):])
			default:
				pattern.WriteString(regexp.QuoteMeta(word))
				if len(word) > len(longest) {
					longest = word
				}
			}
			if i < len(words)-1 {
				pattern.WriteByte(' ')
			}
		}
		is := regexp.MustCompile(pattern.String())
		if slices.ContainsFunc(text, func(line string) bool { return strings.Contains(line, longest) && is.MatchString(line) }) {
			return true
		}
	}
	return false
}

func TestMessagesOfNobodyAreFound(t *testing.T) {
	text := strings.Split(sources(t, "pkg"), "\n")
	for message, ours := range map[string]bool{
		"is published to worker-1: unpublish it first":       true,
		"is published to worker-1: close it first":           false,
		"was made by initiator ... which is not this node's": true,
		"the target refused that node":                       false,
	} {
		if said(text, message) != ours {
			t.Errorf("%q: %t", message, !ours)
		}
	}
}

// Every line that `tarn check` can print is explained.
func TestEveryLineOfCheckIsExplained(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, troubleshooting), "\n## tarn check says FAIL\n")
	if !ok {
		t.Fatal("the page does not explain the lines")
	}
	explained := map[string]bool{}
	for line := range strings.Lines(rest) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			explained[strings.TrimSuffix(m[1], "...")] = true
		}
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?:\b(?:ok|warn|fail|module)\(|what :?= |Line += )"([a-z ]+)"`).FindAllStringSubmatch(sources(t, "pkg/check"), -1) {
		found++
		if !explained[m[1]] {
			t.Errorf("the line %q is not explained", m[1])
		}
	}
	if found < 20 {
		t.Errorf("only %d lines were found", found)
	}
}
