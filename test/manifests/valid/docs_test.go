package valid

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"sigs.k8s.io/yaml"

	"github.com/tarn-csi/tarn/test/docs/markdown"
	"github.com/tarn-csi/tarn/test/manifests/render"
)

// validateUse is validate for what a person makes, snapshots too. What has no
// namespace gets the one that kubectl gives it.
func validateUse(o render.Object) error {
	switch o.Text("kind") {
	case "PersistentVolumeClaim", "Pod", "VolumeSnapshot", "Secret":
		if meta, ok := o["metadata"].(map[string]any); ok && meta["namespace"] == nil {
			meta["namespace"] = "default"
		}
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	switch o.Text("kind") {
	case "VolumeSnapshot":
		return yaml.UnmarshalStrict(raw, &snapshots.VolumeSnapshot{})
	case "VolumeSnapshotContent":
		return yaml.UnmarshalStrict(raw, &snapshots.VolumeSnapshotContent{})
	}
	return validate(o)
}

// Kubernetes takes every object that the documentation shows.
func TestKubernetesTakesTheDocumentation(t *testing.T) {
	docs, err := markdown.Read(render.Root())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range docs {
		for _, b := range d.Blocks {
			if b.Language != "yaml" || !strings.Contains(b.Text, "kind:") {
				continue // a configuration of Tarn
			}
			objects, err := render.Objects([]byte(b.Text))
			if err != nil {
				t.Errorf("%s:%d: %v", d.Path, b.Line, err)
			}
			for _, o := range objects {
				if o.Text("kind") == "Kustomization" {
					continue
				}
				found++
				if err := validateUse(o); err != nil {
					t.Errorf("%s:%d: %s: %v", d.Path, b.Line, o, err)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d objects were found", found)
	}
}

// Kubernetes takes what `tarn volumes --pv-yaml` prints, and not when a part of it
// is another.
func TestKubernetesTakesPersistentVolumesOfThePool(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(render.Root(), "pkg/manifest/testdata/volumes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, part string }{
		{"", "", ""},
		{"storage: 5Gi", "storage: 5GB", "quantities"},
		{"name: pvc-a", "name: pvc_a", "metadata.name"},
		{"- ReadOnlyMany", "- ReadWriteOncePod", "ReadWriteOncePod"},
		{"volumeHandle: tank/a", `volumeHandle: ""`, "volumeHandle"},
		{"volumeMode: Block", "volumeMode: Raw", "volumeMode"},
		{"claimRef:", "claimReference:", "unknown field"},
	} {
		objects, err := render.Objects([]byte(strings.Replace(string(raw), c.from, c.to, 1)))
		if err != nil || len(objects) != 3 {
			t.Fatalf("%d objects, %v", len(objects), err)
		}
		var said []string
		for _, o := range objects {
			if err := validateUse(o); err != nil {
				said = append(said, err.Error())
			}
		}
		if text := strings.Join(said, "\n"); (text == "") != (c.part == "") || !strings.Contains(text, c.part) {
			t.Errorf("%q: %s", c.to, text)
		}
	}
}
