// Package markdown reads what the documentation promises: blocks, commands, links
// and headings. It knows as much of Markdown as the documentation uses.
package markdown

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Doc is one page.
type Doc struct {
	// Path is relative to the project's root.
	Path   string
	Blocks []Block
	// Headings are the anchors that links can name.
	Headings []string
	Links    []string
	// Spans are the pieces of code within the text.
	Spans []string
}

// Block is a fenced block, or an indented one, whose Language is "indented".
type Block struct {
	Language string
	// Line is that of its first line, from 1.
	Line int
	Text string
}

// Read reads the README and every page of docs.
func Read(root string) ([]Doc, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	var all []Doc
	for _, path := range append([]string{filepath.Join(root, "README.md")}, paths...) {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d := Parse(string(raw))
		if d.Path, err = filepath.Rel(root, path); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	span = regexp.MustCompile("`([^`\n]+)`")
)

// Parse reads one page.
func Parse(text string) Doc {
	var d Doc
	var prose strings.Builder
	var open *Block   // the block that is being read
	var margin string // what is before its fence
	blank := true     // whether the line before was empty
	for i, line := range strings.Split(text, "\n") {
		language, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		indented := strings.HasPrefix(line, "    ") && strings.TrimSpace(line) != ""
		switch {
		case open != nil && open.Language != "indented":
			if fence {
				d.Blocks, open = append(d.Blocks, *open), nil
				break
			}
			open.Text += strings.TrimPrefix(line, margin) + "\n"
		case fence:
			margin, _, _ = strings.Cut(line, "`")
			open = &Block{Language: strings.TrimSpace(language), Line: i + 2}
		case open != nil && indented:
			open.Text += strings.TrimPrefix(line, "    ") + "\n"
		case open != nil:
			d.Blocks, open = append(d.Blocks, *open), nil
			prose.WriteString(line + "\n")
		case indented && blank:
			open = &Block{Language: "indented", Line: i + 1, Text: strings.TrimPrefix(line, "    ") + "\n"}
		default:
			prose.WriteString(line + "\n")
			if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
				d.Headings = append(d.Headings, d.anchor(title))
			}
		}
		blank = strings.TrimSpace(line) == ""
	}
	if open != nil {
		d.Blocks = append(d.Blocks, *open)
	}
	for _, m := range link.FindAllStringSubmatch(prose.String(), -1) {
		d.Links = append(d.Links, m[1])
	}
	for _, m := range span.FindAllStringSubmatch(prose.String(), -1) {
		d.Spans = append(d.Spans, m[1])
	}
	return d
}

// anchor is what GitHub makes of a heading.
func (d Doc) anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(title)) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

// HasAnchor reports whether the page has a heading for an anchor.
func (d Doc) HasAnchor(anchor string) bool { return slices.Contains(d.Headings, anchor) }
