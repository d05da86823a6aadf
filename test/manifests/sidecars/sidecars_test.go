// Package sidecars holds the manifests to the sidecars of kubernetes-csi, of the
// versions in go.mod: their flags, and what they may do.
package sidecars

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/test/manifests/render"
)

// modules are the sidecars that are Go modules, which the liveness probe and the
// registrar are not.
var modules = map[string]string{
	"csi-provisioner": "github.com/kubernetes-csi/external-provisioner/v6",
	"csi-attacher":    "github.com/kubernetes-csi/external-attacher/v4",
	"csi-resizer":     "github.com/kubernetes-csi/external-resizer/v2",
	"csi-snapshotter": "github.com/kubernetes-csi/external-snapshotter/v8",
}

// common has the flags that all of them have.
const common = "github.com/kubernetes-csi/csi-lib-utils"

// module tells where a module's source is, and its version.
func module(t *testing.T, path string) (dir, version string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", path).Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) != 2 {
		t.Fatalf("%s: %v, %q", path, err, out)
	}
	return words[0], words[1]
}

// A sidecar is a container of a controller's pod.
type sidecar struct {
	overlay, name, image string
	args                 []string
}

// controllers are the sidecars of each overlay that is for the versions here.
func controllers(t *testing.T) (list []sidecar) {
	t.Helper()
	for _, with := range [][]string{{"combined"}, {"combined", "storage-capacity"}, {"split"}} {
		objects, err := render.Kustomize(with[0], with[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.Text("kind") != "StatefulSet" {
				continue
			}
			spec := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			for _, c := range spec["containers"].([]any) {
				c := c.(map[string]any)
				one := sidecar{overlay: strings.Join(with, "+"), name: c["name"].(string), image: c["image"].(string)}
				for _, a := range c["args"].([]any) {
					one.args = append(one.args, a.(string))
				}
				list = append(list, one)
			}
		}
	}
	return list
}

// definition is how Go code defines a flag: flag.Bool("name", flags.StringVar(&x, "name".
var definition = regexp.MustCompile(`(?i)flags?\.\w+\((?:&[\w.]+, )?"([a-z-]+)"`)

func flagsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no Go files: %v", folder, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range definition.FindAllStringSubmatch(string(raw), -1) {
			known[m[1]] = true
		}
	}
	return known
}

// known are a sidecar's flags.
func known(t *testing.T, name string) map[string]bool {
	t.Helper()
	dir, _ := module(t, modules[name])
	all, _ := module(t, common)
	flags := flagsOf(t, filepath.Join(dir, "cmd", name))
	maps.Copy(flags, flagsOf(t, filepath.Join(all, "standardflags")))
	return flags
}

func wantFlags(t *testing.T, what string, known map[string]bool, args []string) {
	t.Helper()
	for _, a := range args {
		flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if !strings.HasPrefix(a, "--") || !known[flag] {
			t.Errorf("%s has no flag %s", what, a)
		}
	}
}

// The images are of the versions whose flags and roles are looked at, and every
// flag is one that the sidecar has.
func TestSidecarsHaveTheirFlags(t *testing.T) {
	found := map[string]int{}
	for _, c := range controllers(t) {
		path, ok := modules[c.name]
		if !ok {
			continue
		}
		found[c.name]++
		_, version := module(t, path)
		if want := "registry.k8s.io/sig-storage/" + c.name + ":" + version; c.image != want {
			t.Errorf("%s: %s is %s, not %s", c.overlay, c.name, c.image, want)
		}
		wantFlags(t, c.overlay+": "+c.name, known(t, c.name), c.args)
	}
	for name := range modules {
		if found[name] != 4 {
			t.Errorf("%d controllers have a %s", found[name], name)
		}
	}
}

// With systemd the sidecars have the flags of their pods.
func TestSidecarsOfSystemdHaveTheirFlags(t *testing.T) {
	for _, c := range controllers(t) {
		if c.overlay != "combined" || modules[c.name] == "" {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(render.Root(), "deploy/systemd", c.name+".env"))
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(raw), "\nSIDECAR_ARGS=")
		args := append([]string{"--csi-address=/csi/csi.sock"}, strings.Fields(line)...)
		wantFlags(t, c.name, known(t, c.name), args)
		if !slices.Equal(args, c.args) {
			t.Errorf("%s has %q in its pod, and %q with systemd", c.name, c.args, args)
		}
	}
}

// permission is one verb on one kind of object.
type permission struct{ group, resource, verb string }

func (p permission) String() string { return p.verb + " " + p.resource + "." + p.group }

func permissions(list []render.Object) map[permission]bool {
	all := map[permission]bool{}
	for _, o := range list {
		if kind := o.Text("kind"); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		for _, r := range o["rules"].([]any) {
			r := r.(map[string]any)
			for _, g := range r["apiGroups"].([]any) {
				for _, res := range r["resources"].([]any) {
					for _, v := range r["verbs"].([]any) {
						all[permission{g.(string), res.(string), v.(string)}] = true
					}
				}
			}
		}
	}
	return all
}

// spared are the permissions that the sidecars' own manifests give and ours do
// not, and why they can do without.
var spared = map[string]string{
	"leases":      "there is one controller and no election of a leader",
	"replicasets": "the controller is a StatefulSet",
	"pods":        "csi-resizer looks at Pods only with --handle-volume-inuse-error",
	"events":      "an event is created, and patched when it comes again",
}

// The role has what the sidecars' own manifests ask for, but for what is spared,
// and nothing else.
func TestTheRoleIsWhatTheSidecarsNeed(t *testing.T) {
	wanted := map[permission]bool{}
	for name, path := range modules {
		dir, _ := module(t, path)
		file := filepath.Join(dir, "deploy/kubernetes/rbac.yaml")
		if name == "csi-snapshotter" {
			file = filepath.Join(dir, "deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml")
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		list, err := render.Objects(raw)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(wanted, permissions(list))
	}
	// With the component, which has a role of its own.
	objects, err := render.Kustomize("combined", "storage-capacity")
	if err != nil {
		t.Fatal(err)
	}
	ours := permissions(objects)
	if len(ours) < 30 || len(wanted) < 30 {
		t.Fatalf("%d and %d permissions were found", len(ours), len(wanted))
	}
	for p := range ours {
		if !wanted[p] {
			t.Errorf("nobody needs to %s", p)
		}
		if slices.Contains([]string{"secrets", "*"}, p.resource) || p.verb == "*" || p.group == "*" {
			t.Errorf("%s is too much", p)
		}
	}
	unused := maps.Clone(spared)
	for p := range wanted {
		if ours[p] {
			continue
		}
		if spared[p.resource] == "" {
			t.Errorf("a sidecar needs to %s", p)
		}
		delete(unused, p.resource)
	}
	for resource := range unused {
		t.Errorf("nothing of %s is spared", resource)
	}
}

// The driver itself asks for little, for its events: docs/metrics.md. Where the
// controller is a pod it may, and has its own name.
func TestTheDriverMayTellEvents(t *testing.T) {
	for _, overlay := range []string{"combined", "split", "csi-0.2"} {
		objects, err := render.Kustomize(overlay)
		if err != nil {
			t.Fatal(err)
		}
		may := permissions(objects)
		for _, p := range []permission{{"", "persistentvolumes", "get"}, {"", "events", "create"}, {"", "events", "patch"}} {
			if !may[p] {
				t.Errorf("%s: the driver may not %s", overlay, p)
			}
		}
		for _, o := range objects {
			if o.Text("kind") != "StatefulSet" {
				continue
			}
			var names []string
			spec := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			for _, c := range spec["containers"].([]any) {
				if c := c.(map[string]any); c["name"] == "tarn" {
					for _, e := range c["env"].([]any) {
						names = append(names, e.(map[string]any)["name"].(string))
					}
				}
			}
			if !slices.Contains(names, "POD_NAME") || !slices.Contains(names, "POD_UID") {
				t.Errorf("%s: tarn of %s has %q", overlay, o, names)
			}
		}
	}
}
