//go:build guest

package iscsi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/test/machine"
)

// The tests of this file change the machine's pools, targets and sessions, so
// they run in a guest only (hack/vm). What they need and do not find fails them.

const guestPool = "tarnexport"

// TestMain makes the pool that all tests of the guest use.
func TestMain(m *testing.M) {
	if os.Getenv("TARN_GUEST") != "1" {
		fmt.Fprintln(os.Stderr, "these tests are for the inside of a guest (hack/vm)")
		os.Exit(1)
	}
	os.Exit(runInPool(m))
}

func runInPool(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tarn-export")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "pool")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 2<<30)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if out, err := command("zpool", "create", "-m", "none", guestPool, file); err != nil {
		fmt.Fprintln(os.Stderr, err, out)
		return 1
	}
	code := m.Run()
	if out, err := command("zpool", "destroy", guestPool); err != nil {
		fmt.Fprintln(os.Stderr, err, out)
		return 1
	}
	return code
}

func TestGuestContract(t *testing.T) { testContract(t, sparingHost) }

// sparingHost is this machine, where a zvol is used again by the next test: what
// a fresh one does is not asked.
func sparingHost(t *testing.T) *host {
	t.Helper()
	h := guestHost(t)
	h.zvol = func(t *testing.T) string {
		t.Helper()
		var path string
		if n := len(spare); n > 0 {
			path, spare = spare[n-1], spare[:n-1]
		} else {
			path = newZvol(t)
		}
		t.Cleanup(func() {
			if !t.Failed() {
				spare = append(spare, path)
			}
		})
		return path
	}
	return h
}

// spare are zvols of a size that nothing uses any more.
var spare []string

// guestHost is this machine, where each zvol is a fresh one.
func guestHost(t *testing.T) *host {
	t.Helper()
	h := &host{fs: configfs.NewHost(configfs.Root), device: HostDevice}
	if _, err := h.fs.List(fabricDir); err != nil {
		t.Fatalf("the target modules are not loaded: %v", err)
	}
	h.zvol = newZvol
	h.listen = func(t *testing.T, address string) func() {
		t.Helper()
		l, err := net.Listen("tcp", address)
		must(t, err)
		return func() { _ = l.Close() }
	}
	return h
}

var (
	zvolMu    sync.Mutex
	zvolCount int
)

// newZvol makes a zvol; its device is most often not there yet.
func newZvol(t *testing.T) string {
	t.Helper()
	zvolMu.Lock()
	zvolCount++
	name := fmt.Sprintf("%s/v%d", guestPool, zvolCount)
	zvolMu.Unlock()
	sh(t, "zfs", "create", "-s", "-V", fmt.Sprint(zvolBytes), "-o", "volmode=dev", name)
	return zvolDir + name
}

// zvolName is the dataset of a zvol's device path.
func zvolName(path string) string { return strings.TrimPrefix(path, zvolDir) }

// destroy takes away the zvol of a device path, which udev may be reading.
func destroy(t *testing.T, path string) {
	t.Helper()
	machine.Eventually(t, "the end of "+path, func() bool { return machine.Run("zfs", "destroy", zvolName(path)) == nil })
}

func command(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(out)), err
}

// sh runs a tool that must succeed and returns what it said.
func sh(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := command(argv...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}
