//go:build guest

package configfs_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// TestGuestKernelFollowsTheRules holds the fake to what the kernel does. It
// changes the machine's target configuration, so it runs in a guest only.
func TestGuestKernelFollowsTheRules(t *testing.T) {
	if os.Getenv("TARN_GUEST") != "1" {
		t.Fatal("this test is for the inside of a guest (hack/vm)")
	}
	h := configfs.NewHost(configfs.Root)
	if _, err := h.List("target/iscsi"); err != nil {
		t.Fatalf("the target modules are not loaded: %v", err)
	}
	var devices [2]string
	for i := range devices {
		devices[i] = loop(t)
	}
	testRules(t, func(t *testing.T) *rig {
		return &rig{fs: h, devices: devices, listen: func(address string) func() {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Close() }
		}}
	})
}

// loop makes a block device that can discard.
func loop(t *testing.T) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("make a loop device: %v", err)
		}
	}
	if out, err := exec.Command("modprobe", "loop").CombinedOutput(); err != nil {
		t.Fatalf("modprobe loop: %v: %s", err, out)
	}
	name := filepath.Join(t.TempDir(), "disk")
	must(os.WriteFile(name, nil, 0o600))
	must(os.Truncate(name, 16<<20))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	must(err)
	defer func() { _ = file.Close() }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(err)
	defer func() { _ = control.Close() }()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	must(err)
	path := fmt.Sprintf("/dev/loop%d", n)
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	must(err)
	must(unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(file.Fd())}))
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			t.Errorf("free %s: %v", path, err)
		}
		_ = device.Close()
	})
	return path
}
