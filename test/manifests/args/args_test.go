// Package args holds the manifests to the driver's own configuration: what they
// start tarn with is parsed by the code that would parse it in a pod.
package args

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/test/manifests/render"
)

// A pod is one of ours: a StatefulSet's or a DaemonSet's, with the ConfigMaps
// beside it.
type pod struct {
	kind   string
	spec   map[string]any
	driver string // the CSIDriver's name that it must have
	files  map[string]map[string]any
}

func pods(t *testing.T, overlay string, components ...string) (list []pod) {
	t.Helper()
	objects, err := render.Kustomize(overlay, components...)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]map[string]any{}
	for _, o := range objects {
		if o.Text("kind") == "ConfigMap" {
			files[o.Text("metadata", "name")] = o["data"].(map[string]any)
		}
	}
	for _, o := range objects {
		if o.Text("kind") == "StatefulSet" || o.Text("kind") == "DaemonSet" {
			_, suffix, _ := strings.Cut(strings.TrimPrefix(o.Text("metadata", "name"), "tarn-"), "-")
			if suffix != "" {
				suffix = "-" + suffix
			}
			spec := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			list = append(list, pod{kind: o.Text("kind"), spec: spec, driver: config.DefaultDriverName + suffix, files: files})
		}
	}
	if len(list) == 0 {
		t.Fatal("it has no pods")
	}
	return list
}

func items(m map[string]any, key string) (list []map[string]any) {
	all, _ := m[key].([]any)
	for _, i := range all {
		list = append(list, i.(map[string]any))
	}
	return list
}

func named(t *testing.T, list []map[string]any, name string) map[string]any {
	t.Helper()
	for _, i := range list {
		if i["name"] == name {
			return i
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// arguments are a container's, with $(NAME) replaced as the kubelet does.
func arguments(t *testing.T, c map[string]any) (list []string) {
	t.Helper()
	values := map[string]string{}
	expand := func(s string) string {
		return reference.ReplaceAllStringFunc(s, func(r string) string {
			v, ok := values[reference.FindStringSubmatch(r)[1]]
			if !ok {
				t.Errorf("%s stands for nothing in %q", r, s)
			}
			return v
		})
	}
	for _, e := range items(c, "env") {
		value, isText := e["value"].(string)
		if !isText {
			value = "worker-1" // the name of the node
		}
		values[e["name"].(string)] = expand(value)
	}
	for _, a := range c["args"].([]any) {
		list = append(list, expand(a.(string)))
	}
	return list
}

// load is the configuration with which a pod's tarn would start: the files that
// the volumes bring are put where the flags look for them.
func load(t *testing.T, p pod) config.Config {
	t.Helper()
	tarn := named(t, items(p.spec, "containers"), "tarn")
	args := arguments(t, tarn)
	if args[0] != "serve" {
		t.Errorf("it starts tarn %s", args[0])
	}
	dir := t.TempDir()
	for _, m := range items(tarn, "volumeMounts") {
		volume := named(t, items(p.spec, "volumes"), m["name"].(string))
		source, ok := volume["configMap"].(map[string]any)
		if !ok {
			continue
		}
		content, ok := p.files[source["name"].(string)]
		if !ok {
			t.Errorf("there is no ConfigMap %s", source["name"])
		}
		for name, text := range content {
			path := filepath.Join(dir, m["mountPath"].(string), name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text.(string)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, a := range args {
		args[i] = strings.Replace(a, "--config=", "--config="+dir, 1)
	}
	set := pflag.NewFlagSet("tarn", pflag.ContinueOnError)
	flags := config.Bind(set)
	if err := set.Parse(args[1:]); err != nil {
		t.Fatal(err)
	}
	if set.NArg() > 0 {
		t.Errorf("%q are no flags", set.Args())
	}
	c, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hostPath is where a container's path is on the host, or "".
func hostPath(t *testing.T, p pod, container, path string) string {
	t.Helper()
	for _, m := range items(named(t, items(p.spec, "containers"), container), "volumeMounts") {
		if rest, ok := strings.CutPrefix(path, m["mountPath"].(string)+"/"); ok {
			if h, ok := named(t, items(p.spec, "volumes"), m["name"].(string))["hostPath"].(map[string]any); ok {
				return filepath.Join(h["path"].(string), rest)
			}
		}
	}
	return ""
}

// every runs a test for each pod of each overlay.
func every(t *testing.T, test func(*testing.T, pod)) {
	for _, overlay := range render.Overlays {
		components := []string{""}
		if overlay == "combined" {
			components = append(components, render.Components...)
		}
		for _, component := range components {
			var with []string
			if component != "" {
				with = []string{component}
			}
			for i, p := range pods(t, overlay, with...) {
				t.Run(fmt.Sprintf("%s/%s/%s-%d", overlay, component, p.kind, i), func(t *testing.T) { test(t, p) })
			}
		}
	}
}

func TestTarnTakesWhatThePodsGiveIt(t *testing.T) {
	every(t, func(t *testing.T, p pod) {
		c := load(t, p)
		mode := map[string]string{"StatefulSet": config.Controller, "DaemonSet": config.Node}[p.kind]
		if c.Mode != mode || c.DriverName != p.driver {
			t.Errorf("it is %s of %s", c.Mode, c.DriverName)
		}
		// The root that it enters is the host's, and mounts that it makes reach it.
		host := named(t, items(named(t, items(p.spec, "containers"), "tarn"), "volumeMounts"), "host")
		if c.HostRoot != host["mountPath"] || host["mountPropagation"] != "Bidirectional" || hostPath(t, p, "tarn", c.HostRoot+"/x") != "/x" {
			t.Errorf("the host's root is %q, mounted %v", c.HostRoot, host)
		}
		// What is read before the root is changed must be the container's own, or below it.
		key := c.NodeKeyFile
		if mode == config.Controller {
			key = c.MasterKeyFile
		}
		inside := slices.ContainsFunc(items(named(t, items(p.spec, "containers"), "tarn"), "volumeMounts"), func(m map[string]any) bool {
			return strings.HasPrefix(key, m["mountPath"].(string)+"/")
		})
		if !inside {
			t.Errorf("nothing is mounted where the key %s is looked for", key)
		}
	})
}

// Every sidecar connects to the socket that tarn listens on, and the registrar
// tells the kubelet of it.
func TestSidecarsFindTheSocket(t *testing.T) {
	every(t, func(t *testing.T, p pod) {
		c := load(t, p)
		socket, err := config.SocketPath(c.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if p.kind == "DaemonSet" && socket != "/var/lib/kubelet/plugins/"+c.DriverName+"/csi.sock" {
			t.Errorf("a kubelet does not look at %s", socket)
		}
		for _, side := range items(p.spec, "containers") {
			if side["name"] == "tarn" {
				continue
			}
			address := flag(t, side, "csi-address")
			if at := hostPath(t, p, side["name"].(string), address); at != socket {
				t.Errorf("%s connects to %s, which is %s and not %s", side["name"], address, at, socket)
			}
			if side["name"] == "node-driver-registrar" && flag(t, side, "kubelet-registration-path") != socket {
				t.Errorf("the kubelet is told %s, not %s", flag(t, side, "kubelet-registration-path"), socket)
			}
		}
	})
}

// flag is the value of a sidecar's flag, or "".
func flag(t *testing.T, c map[string]any, name string) string {
	t.Helper()
	for _, a := range arguments(t, c) {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// Probes ask where a sidecar of the same pod listens, on loopback alone, and all
// pods together can be on one host.
func TestProbesAndPorts(t *testing.T) {
	for _, overlay := range render.Overlays {
		taken := map[string]string{}
		for _, p := range pods(t, overlay) {
			listens := map[string]bool{}
			for _, c := range items(p.spec, "containers") {
				at := flag(t, c, "http-endpoint")
				if at == "" {
					continue
				}
				listens[at] = true
				if !strings.HasPrefix(at, "127.0.0.1:") {
					t.Errorf("%s: %s listens at %s", overlay, c["name"], at)
				}
				if other, twice := taken[at]; twice {
					t.Errorf("%s: %s of %s and %s listen at %s", overlay, c["name"], p.kind, other, at)
				}
				taken[at] = fmt.Sprintf("%s of %s", c["name"], p.kind)
			}
			asked := map[string]bool{}
			for _, c := range items(p.spec, "containers") {
				for _, probe := range []string{"readinessProbe", "livenessProbe", "startupProbe"} {
					if m, ok := c[probe].(map[string]any); ok {
						get := m["httpGet"].(map[string]any)
						at := fmt.Sprintf("%v:%v", get["host"], get["port"])
						asked[at] = true
						if !listens[at] {
							t.Errorf("%s: %s of %s asks %s, where nobody listens", overlay, probe, c["name"], at)
						}
					}
				}
			}
			for at := range listens {
				if !asked[at] {
					t.Errorf("%s: nobody asks %s", overlay, at)
				}
			}
		}
	}
}

// What a pod needs of the host is there for every one: docs/security.md.
func TestPodsAreOfTheHost(t *testing.T) {
	every(t, func(t *testing.T, p pod) {
		for _, field := range []string{"hostNetwork", "hostPID", "hostIPC"} {
			if p.spec[field] != true {
				t.Errorf("%s is %v", field, p.spec[field])
			}
		}
		// Drain: 30 s for the calls, 30 s for what they left running.
		if grace, _ := p.spec["terminationGracePeriodSeconds"].(float64); grace <= 60 {
			t.Errorf("it is killed after %v s", grace)
		}
		for _, c := range items(p.spec, "containers") {
			context, _ := c["securityContext"].(map[string]any)
			if privileged := context["privileged"] == true; privileged != (c["name"] == "tarn") {
				t.Errorf("%s: privileged is %t", c["name"], privileged)
			}
		}
	})
}

// The nodes of an appliance and the sample of its storage host name each other.
func TestTheApplianceIsOfOneInstance(t *testing.T) {
	set := pflag.NewFlagSet("tarn", pflag.ContinueOnError)
	flags := config.Bind(set)
	if err := set.Parse([]string{"--config=" + filepath.Join(render.Root(), "deploy/samples/appliance.yaml")}); err != nil {
		t.Fatal(err)
	}
	host, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	node := load(t, pods(t, "appliance")[0])
	if node.Instance != host.Instance || node.IQNPrefix != host.IQNPrefix || node.DriverName != host.DriverName || !slices.Equal(node.Protocols, host.Protocols) ||
		!slices.Equal(node.PortalHints, host.Pools[0].Addresses) {
		t.Errorf("the nodes are %+v, the storage host is %+v", node, host)
	}
}

// Storage host and nodes of one driver name each other.
func TestPodsOfOneDriverFitTogether(t *testing.T) {
	for _, overlay := range render.Overlays {
		controllers, nodes := map[string]config.Config{}, map[string]config.Config{}
		for _, p := range pods(t, overlay) {
			c := load(t, p)
			if c.Mode == config.Controller {
				controllers[c.DriverName] = c
			} else {
				nodes[c.DriverName] = c
			}
		}
		for name, c := range controllers {
			n := nodes[name]
			if n.Instance != c.Instance || n.IQNPrefix != c.IQNPrefix || !slices.Equal(n.Protocols, c.Protocols) || n.StateDir != c.StateDir || n.RunDir != c.RunDir ||
				!slices.Equal(n.PortalHints, c.Pools[0].Addresses) {
				t.Errorf("%s: the node is %+v, the controller %+v", overlay, n, c)
			}
			for other, o := range controllers {
				if other != name && (o.Instance == c.Instance || o.StateDir == c.StateDir || o.RunDir == c.RunDir || o.Endpoint == c.Endpoint || o.Pools[0].Parent == c.Pools[0].Parent) {
					t.Errorf("%s: %s and %s get in each other's way", overlay, name, other)
				}
			}
		}
	}
}

// With the component a node asks the controller where it listens, for a pool that
// it has, and says of which pod a volume is. Without it, there is none of that.
func TestEphemeralVolumesAreMadeByTheController(t *testing.T) {
	for _, with := range [][]string{nil, {"ephemeral"}} {
		var controller, node config.Config
		for _, p := range pods(t, "combined", with...) {
			if c := load(t, p); c.Mode == config.Controller {
				controller = c
			} else {
				node = c
			}
		}
		if with == nil {
			if node.Ephemeral.Pool != "" {
				t.Errorf("it makes them in pool %s", node.Ephemeral.Pool)
			}
			continue
		}
		known := slices.ContainsFunc(controller.Pools, func(p config.Pool) bool { return p.Name == node.Ephemeral.Pool })
		if !known || node.ControllerEndpoint != controller.Endpoint || node.HostRoot != controller.HostRoot || node.Ephemeral.MaxBytes < node.Ephemeral.DefaultBytes {
			t.Errorf("the node asks %s for %+v, the controller is %+v", node.ControllerEndpoint, node.Ephemeral, controller)
		}
	}
}
