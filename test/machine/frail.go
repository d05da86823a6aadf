package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Frail is a pool of 256 MiB on a disk that can be taken away under it.
type Frail struct {
	Name string

	t              testing.TB
	mapping, table string
	broken         bool
}

// NewFrail makes the pool, with the options of zpool create, until the test ends.
func NewFrail(t testing.TB, name string, options ...string) *Frail {
	t.Helper()
	const bytes = 256 << 20
	image := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, bytes)); err != nil {
		t.Fatal(err)
	}
	Sh(t, "modprobe", "-a", "loop", "dm_mod")
	f := &Frail{Name: name, t: t, mapping: name, table: fmt.Sprintf("0 %d linear %s 0", bytes/512, loopDevice(t, image))}
	Sh(t, "dmsetup", "create", f.mapping, "--table", f.table)
	t.Cleanup(func() {
		if err := Run("dmsetup", "remove", "--retry", f.mapping); err != nil {
			t.Error(err)
		}
	})
	Sh(t, "zpool", append(append([]string{"create", "-f", "-o", "cachefile=none"}, options...), name, f.Device())...)
	t.Cleanup(func() {
		f.Heal()
		// The kernel's caches may keep what was exported busy for a while.
		Eventually(t, "the end of pool "+name, func() bool {
			return Run("zpool", "list", name) != nil || Run("zpool", "destroy", "-f", name) == nil
		})
	})
	return f
}

// Device is the disk.
func (f *Frail) Device() string { return "/dev/mapper/" + f.mapping }

// Break takes the disk away: what reads or writes fails. The pool is suspended
// once something writes.
func (f *Frail) Break() {
	f.t.Helper()
	f.broken = true
	Sh(f.t, "dmsetup", "wipe_table", f.mapping)
}

// Heal brings the disk back, with its data, and lets the pool go on.
func (f *Frail) Heal() {
	f.t.Helper()
	if !f.broken {
		return
	}
	f.broken = false
	Sh(f.t, "dmsetup", "load", f.mapping, "--table", f.table)
	Sh(f.t, "dmsetup", "resume", f.mapping)
	Sh(f.t, "zpool", "clear", f.Name)
}

// Suspended tells whether the pool is.
func (f *Frail) Suspended() bool {
	f.t.Helper()
	return Sh(f.t, "zpool", "list", "-H", "-o", "health", f.Name) == "SUSPENDED\n"
}

// loopDevice makes a disk of a file, as losetup(8) does.
func loopDevice(t testing.TB, image string) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(err)
	defer control.Close() //nolint:errcheck // it was asked for a number
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	must(err)
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	must(err)
	defer backing.Close() //nolint:errcheck // the device has its own hold of it
	device := fmt.Sprintf("/dev/loop%d", n)
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	must(err)
	must(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(backing.Fd())))
	t.Cleanup(func() {
		if err := errors.Join(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0), loop.Close()); err != nil {
			t.Errorf("detach %s: %v", device, err)
		}
	})
	return device
}
