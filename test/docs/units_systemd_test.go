//go:build systemd

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd itself reads the units.
func TestSystemdTakesTheUnits(t *testing.T) {
	dir := t.TempDir()
	args := []string{"verify"}
	for _, name := range units {
		// It looks for the program, which is installed nowhere here.
		text := strings.ReplaceAll(read(t, "deploy/systemd/"+name), "ExecStart=/usr/local/bin/", "ExecStart=/bin/true ")
		path := filepath.Join(dir, strings.Replace(name, "@.", "@csi-attacher.", 1))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
