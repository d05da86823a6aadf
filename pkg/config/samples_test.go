package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

const samples = "../../deploy/samples"

func TestEverySampleLoads(t *testing.T) {
	modes := map[string]string{"single": All, "two-pools": All, "appliance": Controller, "node": Node}
	files, err := filepath.Glob(samples + "/*.yaml")
	if err != nil || len(files) != len(modes) {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			c, err := load(t, "--config", file)
			if err != nil {
				t.Fatal(err)
			}
			if want := modes[name[:len(name)-len(".yaml")]]; c.Mode != want {
				t.Errorf("the mode is %s, want %s", c.Mode, want)
			}
		})
	}
}

func TestTheSampleOfDefaultsTellsTheDefaults(t *testing.T) {
	written, err := load(t, "--config", samples+"/single.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bare, err := load(t, "--pool", "tank=tank/csi", "--address", "192.0.2.10")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(written, bare) {
		t.Errorf("the sample is %+v, the defaults are %+v", written, bare)
	}
}

func TestSamplesExplainEveryKey(t *testing.T) {
	explained := map[string]bool{}
	keys := keysOf(reflect.TypeFor[Config](), "")
	files, _ := filepath.Glob(samples + "/*.yaml")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		here := map[string]bool{}
		walk(doc.Content[0], "", "", func(key, comment string) {
			// What is below a key that is no setting is the administrator's.
			if comment == "" && !here[key] && slices.Contains(keys, key) {
				t.Errorf("%s does not explain %s", file, key)
			}
			here[key], explained[key] = true, true
		})
	}
	for _, key := range keys {
		if !explained[key] {
			t.Errorf("no sample has %s", key)
		}
	}
}

// walk visits the keys of a mapping and what is below, with their comments.
func walk(n *yaml.Node, path, above string, visit func(key, comment string)) {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key := path + n.Content[i].Value
		comment := n.Content[i].HeadComment + n.Content[i].LineComment
		if i == 0 {
			comment += above // that of a list's item belongs to its first key
		}
		visit(key, comment)
		walk(n.Content[i+1], key+".", "", visit)
		for _, item := range n.Content[i+1].Content {
			walk(item, key+".", item.HeadComment, visit)
		}
	}
}

// keysOf lists the keys that a configuration file may have.
func keysOf(t reflect.Type, path string) []string {
	var list []string
	for f := range fields(t) {
		key := path + f.Tag.Get("yaml")
		list = append(list, key)
		e := f.Type
		if e.Kind() == reflect.Slice {
			e = e.Elem()
		}
		if e.Kind() == reflect.Struct {
			list = append(list, keysOf(e, key+".")...)
		}
	}
	return list
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
