// Package render makes objects of the manifests, as kubectl and helm would.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Object is one object, as JSON has it.
type Object map[string]any

// Text returns a field of text, or "".
func (o Object) Text(path ...string) string {
	var at any = map[string]any(o)
	for _, p := range path {
		m, _ := at.(map[string]any)
		at = m[p]
	}
	s, _ := at.(string)
	return s
}

// String names the object.
func (o Object) String() string {
	return fmt.Sprintf("%s %s/%s", o.Text("kind"), o.Text("metadata", "namespace"), o.Text("metadata", "name"))
}

// Root is the project's folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}

// Overlays are the overlays that a person installs.
var Overlays = []string{"combined", "combined-1.29", "split", "appliance", "csi-0.2"}

// Components are the components that a person adds to one.
var Components = []string{"storage-capacity", "chap-secrets", "node-key-on-host", "ephemeral"}

// built are the overlays that were built already, each a text, since what is made
// of it may be changed.
var built sync.Map

// Kustomize builds deploy/kubernetes/overlays/NAME, with components on top.
func Kustomize(overlay string, components ...string) ([]Object, error) {
	key := strings.Join(append([]string{overlay}, components...), "+")
	if raw, ok := built.Load(key); ok {
		return Objects(raw.([]byte))
	}
	raw, err := build(overlay, components)
	if err != nil {
		return nil, err
	}
	built.Store(key, raw)
	return Objects(raw)
}

func build(overlay string, components []string) ([]byte, error) {
	disk := filesys.MakeFsOnDisk()
	folder := filepath.Join(Root(), "deploy/kubernetes/overlays", overlay)
	if len(components) > 0 {
		// The overlay that a person would write, beside the project's.
		top, err := filesys.NewTmpConfirmedDir()
		if err != nil {
			return nil, err
		}
		defer disk.RemoveAll(top.String()) //nolint:errcheck // a temporary folder
		base, err := filepath.Rel(top.String(), filepath.Join(Root(), "deploy/kubernetes"))
		if err != nil {
			return nil, err
		}
		text := "resources: [" + filepath.Join(base, "overlays", overlay) + "]\ncomponents:\n"
		for _, c := range components {
			text += "- " + filepath.Join(base, "components", c) + "\n"
		}
		folder = top.String()
		if err := disk.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text)); err != nil {
			return nil, err
		}
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, folder)
	if err != nil {
		return nil, err
	}
	return made.AsYaml()
}

// Objects reads a stream of YAML documents. Empty ones are none.
func Objects(raw []byte) ([]Object, error) {
	var list []Object
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc map[string]any
		err := decoder.Decode(&doc)
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if len(doc) == 0 {
			continue
		}
		// Through JSON, so that numbers have one type.
		text, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		var o Object
		if err := json.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
}
