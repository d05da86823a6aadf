package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyAProcessOfTheHostEnters(t *testing.T) {
	const pid = 4711
	for want, change := range map[string]map[string]string{
		"":                 nil,
		"hostPID":          {"self": "17"},
		"hostNetwork":      {"4711/ns/net": "net:[4026532001]"},
		"hostIPC":          {"4711/ns/ipc": "ipc:[4026532002]"},
		"in the host's":    {"1/ns/net": ""}, // it cannot be read
		"(\"\", not 4711)": {"self": ""},     // as of a process that this /proc does not know
	} {
		proc := t.TempDir()
		links := map[string]string{"self": "4711", "1/ns/net": "net:[1]", "1/ns/ipc": "ipc:[2]", "4711/ns/net": "net:[1]", "4711/ns/ipc": "ipc:[2]", "17/ns/net": "net:[1]", "17/ns/ipc": "ipc:[2]"}
		for name, to := range change {
			links[name] = to
		}
		for name, to := range links {
			path := filepath.Join(proc, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if to == "" {
				continue
			}
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
		}
		err := ofHost(proc, pid)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
