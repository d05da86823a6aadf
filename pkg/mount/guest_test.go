//go:build guest

package mount

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests behind the tag guest run as root in a virtual machine, on real
// zvols. What is missing there is a failure, never a skip.

const poolName = "tarnmount"

var makePool = sync.OnceValue(func() error {
	if os.Getenv("TARN_GUEST") != "1" {
		return fmt.Errorf("this test changes the machine: run it in a guest")
	}
	if exec.Command("zpool", "list", poolName).Run() == nil {
		if out, err := exec.Command("zpool", "destroy", poolName).CombinedOutput(); err != nil {
			return fmt.Errorf("zpool destroy: %v: %s", err, out)
		}
	}
	file := filepath.Join(os.TempDir(), poolName+".img")
	_ = os.Remove(file)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, 8<<30); err != nil {
		return err
	}
	if out, err := exec.Command("zpool", "create", "-O", "volmode=dev", "-m", "none", poolName, file).CombinedOutput(); err != nil {
		return fmt.Errorf("zpool create: %v: %s", err, out)
	}
	return nil
})

// sh runs a tool of the test itself and returns its output.
func sh(t *testing.T, tool string, args ...string) string {
	t.Helper()
	out, err := exec.Command(tool, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", tool, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var zvols int

// zvol makes a sparse zvol and returns its name and device.
func zvol(t *testing.T, sizeBytes int64) (name, device string) {
	t.Helper()
	if err := makePool(); err != nil {
		t.Fatal(err)
	}
	zvols++
	name = fmt.Sprintf("%s/v%d", poolName, zvols)
	sh(t, "zfs", "create", "-s", "-o", "volblocksize=16k", "-V", fmt.Sprint(sizeBytes), name)
	device = "/dev/zvol/" + name
	// volmode comes from the parent: with -o volmode=dev the device is made,
	// removed and made again. An event of the zvol that had the number before
	// may be late, too.
	eventually(t, "quiet in udev", func() bool { return exec.Command("udevadm", "settle", "--timeout=60").Run() == nil })
	eventually(t, "the device of "+name, func() bool {
		_, _, ok := deviceNumber(device)
		return ok
	})
	t.Cleanup(func() {
		eventually(t, "destroying "+name, func() bool { return exec.Command("zfs", "destroy", name).Run() == nil })
	})
	return name, device
}

// eventually waits for what udev or the kernel does soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s does not come about", what)
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
