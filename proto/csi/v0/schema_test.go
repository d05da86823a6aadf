package csiv0

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:embed schema.golden
var golden string

//go:embed csi.proto
var source string

// goldenTable returns the lines of schema.golden that are entries.
func goldenTable() []string {
	var table []string
	for line := range strings.Lines(golden) {
		line = strings.TrimRight(line, "\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			table = append(table, line)
		}
	}
	return table
}

func TestGeneratedCodeHasTheSchemaOfTheSpecification(t *testing.T) {
	if diff := cmp.Diff(goldenTable(), descriptorTable(File_csi_v0_csi_proto)); diff != "" {
		t.Errorf("generated code differs from the specification (-specification +generated):\n%s", diff)
	}
}

func TestSourceHasTheSchemaOfTheSpecification(t *testing.T) {
	table, err := sourceTable(source)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goldenTable(), table); diff != "" {
		t.Errorf("csi.proto differs from the specification (-specification +csi.proto):\n%s", diff)
	}
}
