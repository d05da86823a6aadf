package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/test/docs/markdown"
)

// Links within the project lead to a file, and to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	d := markdown.Parse(read(t, "hack/vm/README.md"))
	d.Path = "hack/vm/README.md"
	all = append(all, d)
	links := 0
	for _, d := range all {
		for _, to := range d.Links {
			if strings.Contains(to, "://") {
				continue
			}
			links++
			if why := broken(all, d, to); why != "" {
				t.Errorf("%s: link %s: %s", d.Path, to, why)
			}
		}
	}
	if links < 10 {
		t.Errorf("only %d links were found", links)
	}
}

// broken says what is wrong with a link of a page, or "".
func broken(all []markdown.Doc, from markdown.Doc, to string) string {
	path, anchor, _ := strings.Cut(to, "#")
	target := from.Path
	if path != "" {
		target = filepath.Join(filepath.Dir(from.Path), path)
	}
	if _, err := os.Stat(filepath.Join(root, target)); err != nil {
		return "there is no such file"
	}
	if anchor == "" {
		return ""
	}
	for _, d := range all {
		if d.Path == target {
			if d.HasAnchor(anchor) {
				return ""
			}
			return "there is no such heading"
		}
	}
	return "the page is not read by this test"
}

func TestBrokenLinksAreFound(t *testing.T) {
	all := pages(t)
	from := markdown.Doc{Path: "docs/design.md", Headings: []string{"here"}}
	all = append(all, markdown.Doc{Path: "docs/cases.md"})
	for to, ok := range map[string]bool{"limitations.md": true, "../README.md#run-it": true, "../README.md#run": false, "nowhere.md": false, "#names-and-ids": true, "#nowhere": false} {
		if why := broken(all, from, to); (why == "") != ok {
			t.Errorf("%s: %q", to, why)
		}
	}
}
