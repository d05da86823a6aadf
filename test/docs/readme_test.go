// Package docs holds the documentation to the code.
package docs

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tarn-csi/tarn/pkg/check"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/ephemeral"
	"github.com/tarn-csi/tarn/pkg/volume"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section returns what stands below a heading of a page.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, page), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

func TestParameterTableIsComplete(t *testing.T) {
	var listed []string
	table, _, _ := strings.Cut(section(t, "docs/parameters.md", "StorageClass"), "```")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			listed = append(listed, m[1])
		}
	}
	slices.Sort(listed)
	if known := volume.KnownParameters(); !slices.Equal(listed, known) {
		t.Errorf("the page lists\n%q, the driver knows\n%q", listed, known)
	}
}

func TestAttributesOfPodsAreListed(t *testing.T) {
	var listed []string
	_, table, _ := strings.Cut(section(t, "docs/parameters.md", "In a pod's specification"), "| attribute |")
	for line := range strings.Lines(table) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| `") {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
				listed = append(listed, m[1])
			}
		}
	}
	slices.Sort(listed)
	if known := ephemeral.KnownAttributes(); !slices.Equal(listed, known) {
		t.Errorf("the page lists\n%q, the driver knows\n%q", listed, known)
	}
}

// The paragraph after the table names the parameters that can change.
func TestMutableParametersAreNamed(t *testing.T) {
	_, rest, ok := strings.Cut(section(t, "docs/parameters.md", "Changing a volume"), "\nDuring a volume's life")
	if !ok {
		t.Fatal("the page does not say what can change")
	}
	rest, _, _ = strings.Cut(rest, "```")
	var listed []string
	for _, m := range regexp.MustCompile("`(zfs\\.[a-z]+)`").FindAllStringSubmatch(rest, -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	if mutable := volume.MutableParameters(""); !slices.Equal(listed, mutable) {
		t.Errorf("the page lists\n%q, the driver takes\n%q", listed, mutable)
	}
}

func TestErrorTableNamesEveryCode(t *testing.T) {
	text := section(t, "README.md", "Errors")
	for _, code := range []string{"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED",
		"FAILED_PRECONDITION", "ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"} {
		if !strings.Contains(text, "| "+code+" |") {
			t.Errorf("%s is missing", code)
		}
	}
}

func TestStorageClassIsOneThatTheDriverTakes(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "README.md"), "```yaml\n")
	block, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("the README has no YAML")
	}
	var class struct {
		Kind        string
		Provisioner string
		Parameters  map[string]string
	}
	if err := yaml.Unmarshal([]byte(block), &class); err != nil {
		t.Fatal(err)
	}
	if class.Kind != "StorageClass" || class.Provisioner != config.DefaultDriverName {
		t.Errorf("it is %s of %s", class.Kind, class.Provisioner)
	}
	for key := range class.Parameters {
		if !slices.Contains(volume.KnownParameters(), key) {
			t.Errorf("parameter %s is unknown", key)
		}
	}
}

// What `tarn check --json` prints is named, field by field.
func TestFieldsOfFindingsAreNamed(t *testing.T) {
	var listed, have []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(section(t, "README.md", "Is this host well?"), -1) {
		listed = append(listed, m[1])
	}
	for f := range reflect.TypeFor[check.Finding]().Fields() {
		have = append(have, f.Tag.Get("json"))
	}
	if !slices.Equal(listed, have) {
		t.Errorf("the README lists %q, a finding has %q", listed, have)
	}
}
