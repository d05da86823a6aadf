//go:build guest

package zfs_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

const (
	guestPool  = "tarn-zfs-test"
	guestBytes = 512 << 20
)

// TestMain makes one pool for all tests. Nothing is skipped: what is missing in
// the guest fails them.
func TestMain(m *testing.M) {
	if os.Getenv("TARN_GUEST") != "1" {
		fmt.Fprintln(os.Stderr, "this test binary is for the inside of a guest: hack/vm/run -- ...")
		os.Exit(1)
	}
	os.Exit(withPool(m))
}

func withPool(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tarn-zfs-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	guestDir = filepath.Join(dir, "mnt")
	_ = command("zpool", "destroy", "-f", guestPool) // of a run that was killed
	defer func() { _ = command("zpool", "destroy", "-f", guestPool) }()
	if err := newPool(guestPool, filepath.Join(dir, "disk"), guestDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// guestDir is where the pool is mounted.
var guestDir string

func newPool(pool, image, mountpoint string, options ...string) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(guestBytes), f.Close()); err != nil {
		return err
	}
	return command("zpool", append(append([]string{"create", "-f", "-o", "ashift=12", "-m", mountpoint}, options...), pool, image)...)
}

func command(name string, args ...string) error {
	_, err := output(name, args...)
	return err
}

func output(name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

func newClient(t *testing.T) *zfs.Client {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	c, err := zfs.New(run.New(log), patience)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var worlds atomic.Int32

// guestWorld makes a parent of its own for one rule.
func guestWorld(t *testing.T) *world {
	n := fmt.Sprintf("rule %d", worlds.Add(1))
	w := &world{T: t, subject: newClient(t), admin: guestAdmin{t}, parent: guestPool + "/" + n, dir: filepath.Join(guestDir, n), poolBytes: guestBytes}
	w.rootOf = func(_, dir string) zfs.Root {
		var st unix.Stat_t
		w.must(unix.Stat(dir, &st))
		return zfs.Root{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777}
	}
	w.must(command("zfs", "create", w.parent))
	t.Cleanup(func() {
		retryBusy(t, func() error {
			err := command("zfs", "destroy", "-R", w.parent)
			if err == nil {
				return nil
			}
			// It may be gone in spite of a destroy that met a busy device.
			if _, listErr := output("zfs", "list", w.parent); listErr != nil && strings.Contains(listErr.Error(), "dataset does not exist") {
				return nil
			}
			return err
		})
	})
	return w
}

func retryBusy(t *testing.T, call func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := call()
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "busy") || time.Now().After(deadline) {
			t.Errorf("clean up: %v", err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestContractGuest(t *testing.T) { runRules(t, guestWorld) }

// guestAdmin is the administrator of the guest's pool.
type guestAdmin struct{ t *testing.T }

func (guestAdmin) Make(name string, properties ...zfs.Setting) error {
	args := []string{"create", "-p"}
	for _, p := range properties {
		args = append(args, "-o", p.Name+"="+p.Value)
	}
	return command("zfs", append(args, name)...)
}

func (guestAdmin) Bare(name string, volumeBytes int64) error {
	if volumeBytes == 0 {
		return command("zfs", "create", "-u", name)
	}
	return command("zfs", "create", "-s", "-V", fmt.Sprint(volumeBytes), name)
}

func (guestAdmin) Put(name, property, value string) error {
	return command("zfs", "set", property+"="+value, name)
}

func (guestAdmin) TakeSnapshot(name string) error { return command("zfs", "snapshot", name) }

func (guestAdmin) MakeClone(snapshot, name string) error {
	return command("zfs", "clone", "-o", "canmount=noauto", snapshot, name)
}

func (a guestAdmin) HoldSnapshot(name string) (func(), error) {
	return func() {
		if err := command("zfs", "release", "keep", name); err != nil {
			a.t.Fatal(err)
		}
	}, command("zfs", "hold", "keep", name)
}

// MakePartial cuts the stream in the middle, which has to be of some 100 KiB.
func (guestAdmin) MakePartial(snapshot string, s zfs.Spec) error {
	var whole, stderr bytes.Buffer
	send := exec.Command("zfs", "send", "-L", "-c", snapshot)
	send.Stdout = &whole
	if err := send.Run(); err != nil {
		return err
	}
	args := []string{"receive", "-s", "-u"}
	for _, p := range s.Properties {
		args = append(args, "-o", p.Name+"="+p.Value)
	}
	receive := exec.Command("zfs", append(args, zfs.PartialName(s.Name))...)
	receive.Stdin, receive.Stderr = bytes.NewReader(whole.Bytes()[:whole.Len()/2]), &stderr
	if err := receive.Run(); err == nil || !strings.Contains(stderr.String(), "Partially received snapshot is saved") {
		return fmt.Errorf("receive of half a stream: %v: %s", err, &stderr)
	}
	return nil
}

// Receive replaces a dataset by what `zfs send -p` and `zfs receive` make of it.
func (a guestAdmin) Receive(name string) error {
	if err := command("zfs", "snapshot", name+"@send"); err != nil {
		return err
	}
	send, receive := exec.Command("zfs", "send", "-p", name+"@send"), exec.Command("zfs", "receive", "-u", name+".received")
	var err error
	if receive.Stdin, err = send.StdoutPipe(); err != nil {
		return err
	}
	if err := errors.Join(receive.Start(), send.Run(), receive.Wait()); err != nil {
		return err
	}
	retryBusy(a.t, func() error { return command("zfs", "destroy", "-r", name) })
	return errors.Join(command("zfs", "rename", name+".received", name), command("zfs", "destroy", name+"@send"))
}

// device waits for the device of a zvol.
func (a guestAdmin) device(name string, flags int) (*os.File, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(zfs.DevicePath(name), flags, 0)
		if err == nil || !errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
			return f, err
		}
	}
}

func isVolume(name string) bool {
	out, err := output("zfs", "get", "-H", "-o", "value", "type", name)
	return err == nil && out == "volume\n"
}

// in runs work in a filesystem's directory, which is mounted for it if it is not.
func (a guestAdmin) in(name string, work func(dir string) error) error {
	dir, mounted, err := newClient(a.t).MountedAt(a.t.Context(), name)
	if err != nil {
		return err
	}
	if mounted {
		return work(dir)
	}
	dir = a.t.TempDir()
	if err := unix.Mount(name, dir, "zfs", 0, "zfsutil"); err != nil {
		return err
	}
	return errors.Join(work(dir), unix.Unmount(dir, 0))
}

func (a guestAdmin) Write(name string, n int64) error {
	data := make([]byte, n)
	rand.Read(data)
	if isVolume(name) {
		return a.writeAt(name, data, 0, io.SeekStart)
	}
	return a.in(name, func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "data"))
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return errors.Join(err, f.Sync(), f.Close())
	})
}

func (a guestAdmin) WriteLast(name string) error { return a.writeAt(name, []byte{1}, -1, io.SeekEnd) }

// writeAt is seen in what the zvol uses when it returns: udev may have it open, so that closing it writes nothing.
func (a guestAdmin) writeAt(name string, data []byte, offset int64, whence int) error {
	f, err := a.device(name, os.O_RDWR)
	if err != nil {
		return err
	}
	_, err = f.Seek(offset, whence)
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Sync(), f.Close(), command("zpool", "sync", guestPool))
}

func (a guestAdmin) HoldOpen(name string) (func(), error) {
	if isVolume(name) {
		f, err := a.device(name, os.O_RDONLY)
		return func() { _ = f.Close() }, err
	}
	dir, _, err := newClient(a.t).MountedAt(a.t.Context(), name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, "data"))
	return func() { _ = f.Close() }, err
}

func (guestAdmin) UnmountByHand(name string) error { return command("zfs", "unmount", name) }

func (a guestAdmin) MakeEncrypted(name string) error {
	key := filepath.Join(a.t.TempDir(), "key")
	if err := os.WriteFile(key, bytes.Repeat([]byte{1}, 32), 0o600); err != nil {
		return err
	}
	return command("zfs", "create", "-o", "encryption=on", "-o", "keyformat=raw", "-o", "keylocation=file://"+key, name)
}

func (a guestAdmin) LockKey(name string) error {
	retryBusy(a.t, func() error { return command("zfs", "unload-key", name) })
	return nil
}

func (guestAdmin) LoadKey(name string) error { return command("zfs", "load-key", name) }
