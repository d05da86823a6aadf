//go:build guest

package mount

import (
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/test/machine"
)

// These tests need real zvols.

var pool = machine.Pool{Name: "tarnmount", Bytes: 8 << 30, Options: []string{"-O", "volmode=dev"}}

var makePool = sync.OnceValue(func() error {
	afterAll = pool.Down
	return pool.Up()
})

// zvol makes a sparse zvol and returns its name and device.
func zvol(t *testing.T, sizeBytes int64) (name, device string) {
	t.Helper()
	if err := makePool(); err != nil {
		t.Fatal(err)
	}
	return pool.Zvol(t, sizeBytes)
}

func guestContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func guestTools(t *testing.T) (*Mounter, *Filesystems) {
	t.Helper()
	r := runner(io.Discard)
	return New(r), NewFilesystems(r)
}

// mountpoint is a directory that is unmounted at the end.
func mountpoint(t *testing.T, m *Mounter) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := m.Unmount(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
