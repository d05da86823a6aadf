package zfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// What mounts filesystems is seen while it runs, and nothing else is taken for it.
func TestMountingIsSeen(t *testing.T) {
	var c zfs.Client
	mounting := func() bool {
		t.Helper()
		busy, err := c.Mounting(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return busy
	}
	for _, one := range []struct {
		tool, verb string
		want       bool
	}{{"zpool", "import", true}, {"zfs", "mount", true}, {"zfs", "list", false}, {"other", "import", false}} {
		// cat under another name, which waits for what it is told to print.
		dir := t.TempDir()
		if err := os.Symlink("/bin/cat", filepath.Join(dir, one.tool)); err != nil {
			t.Fatal(err)
		}
		fifo := filepath.Join(dir, one.verb)
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("./"+one.tool, one.verb)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Opening ends when the other side has opened it too, and so runs.
		end, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := mounting(); got != one.want {
			t.Errorf("%s %s: %v", one.tool, one.verb, got)
		}
		if err := end.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); mounting(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s %s is seen after its end", one.tool, one.verb)
			}
		}
	}
}
