package valid

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/tarn-csi/tarn/test/manifests/render"
)

// row is a field, and its value in combined, nfs and iscsi.
var row = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|")

// docs/csidriver.md has a row for each field that Kubernetes knows, with what the
// overlays say.
func TestTheTableOfTheCSIDriverIsTrue(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(render.Root(), "docs/csidriver.md"))
	if err != nil {
		t.Fatal(err)
	}
	fields := []string{}
	for f := range reflect.TypeFor[storagev1.CSIDriverSpec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	slices.Sort(fields)
	var listed []string
	rows := row.FindAllStringSubmatch(string(page), -1)
	for _, r := range rows {
		listed = append(listed, r[1])
	}
	if !slices.Equal(listed, fields) {
		t.Errorf("the page has the rows\n%q, Kubernetes the fields\n%q", listed, fields)
	}
	for column, of := range []struct{ overlay, driver string }{
		{"combined", "io.github.tarn-csi"}, {"split", "io.github.tarn-csi-nfs"}, {"split", "io.github.tarn-csi-iscsi"},
	} {
		spec := driver(t, of.overlay, of.driver)
		for _, r := range rows {
			value := "not set"
			if v, ok := spec[r[1]]; ok {
				value = strings.Trim(fmt.Sprint(v), "[]")
			}
			if r[2+column] != value {
				t.Errorf("%s: %s is %s, the page says %s", of.driver, r[1], value, r[2+column])
			}
		}
	}
	for _, overlay := range []string{"combined-1.29", "appliance"} {
		if got, want := driver(t, overlay, "io.github.tarn-csi"), driver(t, "combined", "io.github.tarn-csi"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %v, combined %v", overlay, got, want)
		}
	}
}

func driver(t *testing.T, overlay, name string) map[string]any {
	t.Helper()
	objects, err := render.Kustomize(overlay)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.Text("kind") == "CSIDriver" && o.Text("metadata", "name") == name {
			return o["spec"].(map[string]any)
		}
	}
	t.Fatalf("%s has no driver %s", overlay, name)
	return nil
}
