package config

import (
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestTopology(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		topology map[string]string
		ok       bool
	}{
		{nil, true},
		{map[string]string{"zone": "z1"}, true},
		{map[string]string{"example.com/zone": "Z-1_a.b", "example.com/rack": "r"}, true},
		{map[string]string{"example.com/zone": "z1", "rack": "r"}, true},
		{map[string]string{long: long}, true},
		{map[string]string{long + "a": "z"}, false},
		{map[string]string{"zone": long + "a"}, false},
		{map[string]string{long + "/zone": "z"}, true},
		{map[string]string{long + "a/zone": "z"}, false},
		{map[string]string{"a.example/zone": "z", "b.example/rack": "r"}, false},
		{map[string]string{"Zone": "a", "zone": "b"}, false},
		{map[string]string{"": "z"}, false},
		{map[string]string{"/zone": "z"}, false},
		{map[string]string{"Example.com/zone": "z"}, false},
		{map[string]string{"example..com/zone": "z"}, false},
		{map[string]string{"a/b/c": "z"}, false},
		{map[string]string{"zone": "-z"}, false},
		{map[string]string{"zone": "z 1"}, false},
		{map[string]string{"zone": "z\n"}, false},
		{map[string]string{"-zone": "z"}, false},
	} {
		cfg := valid()
		cfg.Topology = c.topology
		if err := cfg.Complete(); (err == nil) != c.ok || err != nil && fault.Kind(err) != fault.Invalid {
			t.Errorf("%q: %v", c.topology, err)
		}
	}
}
