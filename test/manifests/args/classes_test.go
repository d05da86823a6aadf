package args

import (
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/manifests/render"
)

// What the classes say is what the driver knows, of a driver that is there.
func TestClassesAreOnesThatTarnTakes(t *testing.T) {
	for _, overlay := range render.Overlays {
		objects, err := render.Kustomize(overlay)
		if err != nil {
			t.Fatal(err)
		}
		drivers := []string{}
		for _, o := range objects {
			if o.Text("kind") == "CSIDriver" {
				drivers = append(drivers, o.Text("metadata", "name"))
			}
		}
		if overlay == "csi-0.2" {
			drivers = []string{"io.github.tarn-csi"}
		}
		classes := 0
		for _, o := range objects {
			var name string
			var known []string
			switch o.Text("kind") {
			case "StorageClass":
				name, known = o.Text("provisioner"), volume.KnownParameters()
				protocol := o.Text("parameters", "protocol")
				if strings.HasPrefix(name, "io.github.tarn-csi-") && name != "io.github.tarn-csi-"+protocol {
					t.Errorf("%s: %s is of %s, for %s", overlay, o, name, protocol)
				}
				// By the filesystem in the volume the kubelet tells which one may change its group.
				if fs := o.Text("parameters", "csi.storage.k8s.io/fstype") + o.Text("parameters", "fsType"); (fs != "") != (protocol == volume.ISCSI) {
					t.Errorf("%s: %s over %s has the filesystem %q", overlay, o, protocol, fs)
				}
			case "VolumeAttributesClass":
				name, known = o.Text("driverName"), volume.MutableParameters("")
			case "VolumeSnapshotClass":
				name = o.Text("driver")
			default:
				continue
			}
			classes++
			if !slices.Contains(drivers, name) {
				t.Errorf("%s: %s is of %s, the drivers are %q", overlay, o, name, drivers)
			}
			parameters, _ := o["parameters"].(map[string]any)
			for key := range parameters {
				if !slices.Contains(known, key) && !strings.HasPrefix(key, "csi.storage.k8s.io/") {
					t.Errorf("%s: %s has the parameter %s", overlay, o, key)
				}
			}
		}
		if classes < 3 {
			t.Errorf("%s has %d classes", overlay, classes)
		}
	}
}
