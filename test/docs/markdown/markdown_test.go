package markdown_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/test/docs/markdown"
)

func TestParse(t *testing.T) {
	d := markdown.Parse("# A `title`, with: signs\n\ntext `one` [x](y.md#z)\n    no block\n\n    make it\n    # said\n\n## Second\n\n```console\n" +
		"ls `no span` [no](link)\n```\n- item\n  ```\n  plain\n  ```\n")
	want := markdown.Doc{
		Headings: []string{"a-title-with-signs", "second"},
		Links:    []string{"y.md#z"},
		Spans:    []string{"title", "one"},
		Blocks: []markdown.Block{
			{Language: "indented", Line: 6, Text: "make it\n# said\n"},
			{Language: "console", Line: 12, Text: "ls `no span` [no](link)\n"},
			{Line: 16, Text: "plain\n"},
		},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("it differs (-want +got)\n%s", diff)
	}
}

func TestCommands(t *testing.T) {
	b := markdown.Block{Line: 10, Text: "# a comment\n\na 'b  c' d\\\n  --e=\"f # g\" # said\nh x#y | i > j.txt && k; l < m\n"}
	got, err := b.Commands()
	if err != nil {
		t.Fatal(err)
	}
	want := []markdown.Command{
		{Line: 12, Argv: []string{"a", "b  c", "d", "--e=f # g"}},
		{Line: 14, Argv: []string{"h", "x#y"}},
		{Line: 14, Argv: []string{"i"}, Writes: "j.txt"},
		{Line: 14, Argv: []string{"k"}},
		{Line: 14, Argv: []string{"l"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it differs (-want +got)\n%s", diff)
	}
	for _, text := range []string{"a $(b)", "a `b`", "a 'b", "| a", "a >", "> b"} {
		if list, err := markdown.Split(text); err == nil {
			t.Errorf("%q is read as %q", text, list)
		}
	}
}
