package render

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

// releases are the chart's examples, and the overlays that they are.
var releases = []struct {
	overlay    string
	components []string
	kubernetes string
	values     []string // with the example's name as the release's
	extra      map[string]any
}{
	{overlay: "combined", kubernetes: Newest, values: []string{"combined"}},
	{overlay: "combined-1.29", kubernetes: "v1.29.0", values: []string{"combined"}},
	{overlay: "split", kubernetes: Newest, values: []string{"split-nfs", "split-iscsi"}},
	{overlay: "appliance", kubernetes: Newest, values: []string{"appliance"}},
	{overlay: "combined", components: []string{"storage-capacity"}, kubernetes: Newest, values: []string{"combined"},
		extra: map[string]any{"csiDriver": map[string]any{"storageCapacity": true}}},
	{overlay: "combined", components: []string{"chap-secrets"}, kubernetes: Newest, values: []string{"combined"},
		extra: map[string]any{"chap": map[string]any{"secretsNamespace": "tarn-chap"}}},
	{overlay: "combined", components: []string{"node-key-on-host"}, kubernetes: Newest, values: []string{"combined"},
		extra: map[string]any{"chap": map[string]any{"nodeKeyOnHost": true}}},
	{overlay: "combined", components: []string{"ephemeral"}, kubernetes: Newest, values: []string{"combined"},
		extra: map[string]any{"ephemeral": map[string]any{"pool": "tank"}}},
}

func TestChartAndKustomizeMakeTheSame(t *testing.T) {
	for _, r := range releases {
		t.Run(strings.Join(append([]string{r.overlay}, r.components...), "+"), func(t *testing.T) {
			objects, err := Kustomize(r.overlay, r.components...)
			if err != nil {
				t.Fatal(err)
			}
			want, got := byName(t, objects), map[string]any{}
			for _, name := range r.values {
				values := read(t, name)
				for k, v := range r.extra {
					values[k] = v
				}
				objects, err := Template(name, values, r.kubernetes)
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range byName(t, objects) {
					if got[k] != nil {
						t.Errorf("%s: %s is made twice", name, k)
					}
					got[k] = v
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize (-) and helm (+) differ:\n%s", diff)
			}
		})
	}
}

func read(t *testing.T, name string) map[string]any {
	t.Helper()
	values, err := Values(name)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// byName makes objects comparable: without what the two tools mark theirs with.
func byName(t *testing.T, list []Object) map[string]any {
	t.Helper()
	m := map[string]any{}
	for _, o := range list {
		if o.Text("kind") == "Namespace" {
			continue // helm has its own way to make one
		}
		plain(t, map[string]any(o))
		metadata := o["metadata"].(map[string]any)
		delete(metadata, "labels")
		if o.Text("kind") == "ConfigMap" {
			metadata["name"] = hash.ReplaceAllString(o.Text("metadata", "name"), "")
		}
		if m[o.String()] != nil {
			t.Errorf("%s is made twice", o)
		}
		m[o.String()] = map[string]any(o)
	}
	return m
}

// hash is what kustomize appends to the name of a ConfigMap: no vowels.
var hash = regexp.MustCompile(`-[bcdfghkmt2-9]{10}$`)

// marks are the labels and annotations that one of the tools adds.
var marks = []string{"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart", "checksum/config"}

func plain(t *testing.T, m map[string]any) {
	t.Helper()
	for _, name := range marks {
		delete(m, name)
	}
	for key, value := range m {
		switch v := value.(type) {
		case map[string]any:
			if key == "configMap" {
				v["name"] = hash.ReplaceAllString(v["name"].(string), "")
			}
			plain(t, v)
		case []any:
			for _, item := range v {
				if i, ok := item.(map[string]any); ok {
					plain(t, i)
				}
			}
			// The order of these means nothing, but it may of env.
			if key == "containers" || key == "volumes" {
				slices.SortFunc(v, func(a, b any) int {
					return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
				})
			}
			if key == "env" {
				slices.SortStableFunc(v, func(a, b any) int {
					return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
				})
			}
		case string:
			// A configuration file is compared by what it says.
			if strings.HasSuffix(key, ".yaml") {
				var content any
				if err := yaml.Unmarshal([]byte(v), &content); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				m[key] = content
			}
		}
	}
}

func TestHelmLint(t *testing.T) {
	for _, name := range []string{"combined", "split-nfs", "split-iscsi", "appliance"} {
		for _, m := range Lint(read(t, name)) {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// What the schema, or the templates, must refuse.
func TestValuesThatAreRefused(t *testing.T) {
	for part, change := range map[string]func(map[string]any){
		"pools is empty":      func(v map[string]any) { delete(v, "pools") },
		"protocols":           func(v map[string]any) { v["protocols"] = []any{"smb"} },
		"pool":                func(v map[string]any) { v["pool"] = "tank" },
		"/pools/0":            func(v map[string]any) { v["pools"] = []any{map[string]any{"name": "tank"}} },
		"/pools/0/chap":       func(v map[string]any) { v["pools"].([]any)[0].(map[string]any)["chap"] = "no" },
		"/image":              func(v map[string]any) { v["image"] = map[string]any{"name": "x"} },
		"/ports/node":         func(v map[string]any) { v["ports"] = map[string]any{"node": 80} },
		"/nameSuffix":         func(v map[string]any) { v["nameSuffix"] = "_x" },
		"/csiDriver":          func(v map[string]any) { v["csiDriver"] = map[string]any{"attachRequired": false} },
		"/storageClasses":     func(v map[string]any) { v["storageClasses"] = []any{map[string]any{"name": "x"}} },
		"/ephemeral/maxBytes": func(v map[string]any) { v["ephemeral"] = map[string]any{"maxBytes": 4096} },
		`is "fast", and pools has tank`: func(v map[string]any) {
			v["ephemeral"] = map[string]any{"pool": "fast"}
		},
		"outside the cluster": func(v map[string]any) {
			v["ephemeral"], v["controller"] = map[string]any{"pool": "tank"}, map[string]any{"enabled": false}
		},
		"PeriodSeconds": func(v map[string]any) {
			v["csiDriver"] = map[string]any{"nodeAllocatableUpdatePeriodSeconds": 5}
		},
	} {
		values := read(t, "combined")
		change(values)
		if _, err := Template("tarn", values, Newest); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// A field is rendered from the version on that has it.
func TestFieldsOfLaterVersions(t *testing.T) {
	since := map[string]string{"nodeAllocatableUpdatePeriodSeconds": "v1.33.0", "preventPodSchedulingIfMissing": "v1.35.0", "VolumeAttributesClass": "v1.34.0"}
	for _, version := range []string{"v1.29.0", "v1.32.9", "v1.33.0", "v1.33.5-gke.1", "v1.34.0", "v1.35.0-rc.1", "v1.35.0", Newest} {
		values := read(t, "combined")
		values["csiDriver"] = map[string]any{"preventPodSchedulingIfMissing": true, "nodeAllocatableUpdatePeriodSeconds": 60}
		objects, err := Template("tarn", values, version)
		if err != nil {
			t.Errorf("%s: %v", version, err)
		}
		have := map[string]bool{}
		for _, o := range objects {
			have[o.Text("kind")] = true
			if o.Text("kind") == "CSIDriver" {
				for field := range o["spec"].(map[string]any) {
					have[field] = true
				}
			}
		}
		for what, first := range since {
			if want := strings.Compare(version[:5], first[:5]) >= 0; have[what] != want {
				t.Errorf("%s: %s is rendered: %t, want %t", version, what, have[what], want)
			}
		}
	}
	if _, err := Template("tarn", read(t, "combined"), "v1.28.9"); err == nil || !strings.Contains(err.Error(), "1.29") {
		t.Errorf("an older version: %v", err)
	}
}
