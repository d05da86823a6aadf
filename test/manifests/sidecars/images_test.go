package sidecars

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/test/manifests/render"
)

// others are the images whose source is no Go module that can be fetched, so that
// nothing but this table says that the version exists and has the flags: what was
// looked up when it was written down.
var others = map[string]struct {
	version string
	flags   []string
}{
	"registry.k8s.io/sig-storage/livenessprobe":             {"v2.19.0", []string{"csi-address", "http-endpoint", "probe-timeout"}},
	"registry.k8s.io/sig-storage/csi-node-driver-registrar": {"v2.18.0", []string{"csi-address", "http-endpoint", "kubelet-registration-path"}},
	// Of the generation of CSI 0.2.
	"quay.io/k8scsi/csi-provisioner":  {"v0.2.1", []string{"csi-address", "provisioner"}},
	"quay.io/k8scsi/csi-attacher":     {"v0.2.0", []string{"csi-address"}},
	"quay.io/k8scsi/driver-registrar": {"v0.2.0", []string{"csi-address"}},
}

// containers are all containers of a rendering.
func containers(objects []render.Object) (list []map[string]any) {
	for _, o := range objects {
		if kind := o.Text("kind"); kind == "StatefulSet" || kind == "DaemonSet" {
			spec := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			for _, c := range spec["containers"].([]any) {
				list = append(list, c.(map[string]any))
			}
		}
	}
	return list
}

// Whatever is installed is of one version, which is known here or by go.mod.
func TestImagesAreKnown(t *testing.T) {
	used := map[string]bool{}
	look := func(what string, objects []render.Object, err error) {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers(objects) {
			image, version, _ := strings.Cut(c["image"].(string), ":")
			used[image] = true
			if c["name"] == "tarn" {
				continue
			}
			if _, isModule := modules[strings.TrimPrefix(image, "registry.k8s.io/sig-storage/")]; isModule {
				_, want := module(t, modules[strings.TrimPrefix(image, "registry.k8s.io/sig-storage/")])
				if version != want {
					t.Errorf("%s: %s is %s, the tests know %s", what, image, version, want)
				}
				continue
			}
			k, ok := others[image]
			if !ok || version != k.version {
				t.Errorf("%s: nobody knows %s:%s", what, image, version)
			}
			for _, a := range c["args"].([]any) {
				flag, _, _ := strings.Cut(strings.TrimPrefix(a.(string), "--"), "=")
				if !slices.Contains(k.flags, flag) {
					t.Errorf("%s: nobody knows that %s has the flag %s", what, image, a)
				}
			}
		}
	}
	for _, overlay := range render.Overlays {
		objects, err := render.Kustomize(overlay)
		look(overlay, objects, err)
	}
	values, err := render.Values("combined")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := render.Template("tarn", values, "v1.37.2")
	look("the chart", objects, err)
	for image := range others {
		if !used[image] {
			t.Errorf("nothing uses %s", image)
		}
	}
}

// named is an image with its version, wherever one is written.
var named = regexp.MustCompile(`(registry\.k8s\.io/sig-storage|quay\.io/k8scsi)/([a-z-]+):(v[0-9.]+)`)

// No page and no file of deploy names an image in another version than the
// manifests.
func TestImagesAreNamedInOneVersion(t *testing.T) {
	found := 0
	for _, top := range []string{"README.md", "docs", "deploy"} {
		err := filepath.WalkDir(filepath.Join(render.Root(), top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range named.FindAllStringSubmatch(string(raw), -1) {
				found++
				want := others[m[1]+"/"+m[2]].version
				if modules[m[2]] != "" && want == "" {
					_, want = module(t, modules[m[2]])
				}
				if m[3] != want {
					t.Errorf("%s has %s, want %q", path, m[0], want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 6 {
		t.Errorf("%d are named", found)
	}
}
