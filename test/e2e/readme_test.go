//go:build guest

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/test/harness"
)

// Every command of the README's console blocks works as it stands there, on a
// host as it describes: a pool tank, and the address 192.0.2.10.
func TestReadmeCommands(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pool := t.TempDir()
	for _, argv := range [][]string{
		{"ip", "addr", "add", "192.0.2.10/32", "dev", "lo"},
		{"truncate", "-s", "256M", filepath.Join(pool, "img")},
		{"zpool", "create", "-o", "cachefile=none", "-O", "mountpoint=" + pool + "/tank", "tank", filepath.Join(pool, "img")},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		for _, argv := range [][]string{{"zpool", "destroy", "tank"}, {"ip", "addr", "del", "192.0.2.10/32", "dev", "lo"}} {
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%q: %v: %s", argv, err, out)
			}
		}
	})
	ran := 0
	for i, block := range strings.Split(string(text), "```console\n") {
		if i == 0 {
			continue
		}
		commands, _, _ := strings.Cut(block, "```")
		for line := range strings.Lines(commands) {
			argv := strings.Fields(line)
			if argv[0] == "make" {
				continue // built on the host already
			}
			ran++
			if argv[0] == "bin/tarn" && argv[1] == "serve" {
				serveUntilReady(t, root, argv)
				continue
			}
			c := exec.Command(argv[0], argv[1:]...)
			c.Dir = root
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%q: %v\n%s", argv, err, out)
			}
		}
	}
	if ran < 5 {
		t.Errorf("only %d commands were found", ran)
	}
}

func serveUntilReady(t *testing.T, root string, argv []string) {
	t.Helper()
	var log bytes.Buffer
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Stdout, c.Stderr = root, &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rpcTimeout)
	defer cancel()
	err := harness.WaitReady(ctx, "unix:///run/tarn/csi.sock")
	if e := c.Process.Signal(syscall.SIGTERM); e != nil {
		t.Error(e)
	}
	kill := time.AfterFunc(rpcTimeout, func() { _ = c.Process.Kill() })
	defer kill.Stop()
	if e := c.Wait(); e != nil || err != nil {
		t.Errorf("%q: %v, %v\n%s", argv, err, e, log.String())
	}
}
