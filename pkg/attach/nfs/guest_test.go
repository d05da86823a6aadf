//go:build guest

package nfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

// These tests need the kernel's NFS server on the loopback.

const exportsFile = "/etc/exports.d/tarn-nfs-test.exports"

var pool = machine.Pool{Name: "tarnnfs", Bytes: 2 << 30}

// share is an exported ZFS filesystem.
const share = "/tarnnfs/v"

func TestMain(m *testing.M) { os.Exit(pool.Run(m, makeShare, dropShare)) }

func makeShare() error {
	line := share + " 127.0.0.0/8(rw,sync,no_subtree_check,no_root_squash) ::1(rw,sync,no_subtree_check,no_root_squash)\n"
	return errors.Join(
		machine.Run("zfs", "create", "-o", "mountpoint="+share, pool.Name+"/v"),
		os.MkdirAll(filepath.Dir(exportsFile), 0o755), os.WriteFile(exportsFile, []byte(line), 0o600),
		machine.Run("exportfs", "-r"))
}

func dropShare() error {
	return errors.Join(os.RemoveAll(exportsFile), machine.Run("exportfs", "-r"))
}

type client struct {
	t *testing.T
	a *Attacher
	m *mount.Mounter
}

func newClient(t *testing.T) client {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := run.New(log)
	return client{t, New(r), mount.New(r)}
}

// mount mounts the share and returns where.
func (c client) mount(ctx context.Context, server string, options ...string) (string, error) {
	c.t.Helper()
	d, err := c.a.Attach(ctx, attach.Target{Server: server, Share: share}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	dir := c.t.TempDir()
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.m.Unmount(ctx, dir); err != nil {
			c.t.Error(err)
		}
	})
	return dir, c.m.Mount(ctx, d.Path, dir, "nfs", Options(options), nil)
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestGuestReady(t *testing.T) {
	c := newClient(t)
	if err := c.a.Ready(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
}

// Each form of a server, and each version, once.
func TestGuestMount(t *testing.T) {
	for _, mounted := range []struct {
		server  string
		options []string
		want    string
	}{
		{"127.0.0.1", nil, "vers=4.2"},
		{"::1", []string{"vers=3"}, "vers=3"},
		{"localhost", []string{"nfsvers=4.1", "noatime"}, "vers=4.1"},
	} {
		c := newClient(t)
		ctx := within(t, time.Minute)
		dir, err := c.mount(ctx, mounted.server, mounted.options...)
		if err != nil {
			t.Errorf("%+v: %v", mounted, err)
			continue
		}
		if err := os.WriteFile(dir+"/keep.txt", []byte("kept"), 0o600); err != nil {
			t.Error(err)
		}
		info, err := c.m.At(ctx, dir)
		if err != nil || len(info) != 1 {
			t.Fatalf("%v, %v", info, err)
		}
		super := strings.Join(info[0].SuperOptions, ",") + ","
		if !strings.Contains(super, mounted.want+",") || !strings.Contains(super, "hard,") {
			t.Errorf("%+v: mounted with %s", mounted, super)
		}
		if err := c.m.Unmount(ctx, dir); err != nil {
			t.Errorf("%+v: %v", mounted, err)
		}
	}
}

func TestGuestRefusals(t *testing.T) {
	c := newClient(t)
	ctx := within(t, time.Minute)
	dir := t.TempDir()
	for source, kind := range map[string]error{
		"127.0.0.1:/tarnnfs/other": fault.Precondition, // not exported
		"127.0.0.9:" + share:       nil,                // any loopback address serves
		"192.0.2.77:" + share:      fault.Unavailable,  // no route, or nobody
	} {
		begin := time.Now()
		err := c.m.Mount(ctx, source, dir, "nfs", Options(nil), nil)
		t.Logf("%s: %s: %v", source, time.Since(begin).Round(time.Millisecond), err)
		if kind != nil && !errors.Is(err, kind) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", source, err)
		}
		if err := c.m.Unmount(ctx, dir); err != nil {
			t.Error(err)
		}
	}
}

// C35: a mount that hangs is killed at its deadline and holds up nobody. This one
// is of NFS 3, which asks for the port first.
func TestGuestC35MountFromADeadServer(t *testing.T) {
	c := newClient(t)
	speak := machine.Silence(t, "127.0.0.1")
	begin := time.Now()
	_, err := c.mount(within(t, 3*time.Second), "127.0.0.1", "vers=3")
	took := time.Since(begin).Round(time.Millisecond)
	t.Logf("returned after %s: %v", took, err)
	if !errors.Is(err, context.DeadlineExceeded) || took > 20*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
	if _, err := c.mount(within(t, time.Minute), "127.0.0.2", "vers=3"); err != nil {
		t.Errorf("a healthy server: %v", err)
	}
	speak()
	if _, err := c.mount(within(t, time.Minute), "127.0.0.1", "vers=3"); err != nil {
		t.Errorf("the server answers again: %v", err)
	}
	if out, err := exec.Command("pgrep", "-l", "mount").CombinedOutput(); err == nil && strings.Contains(string(out), "mount.nfs") {
		t.Errorf("processes are left: %s", out)
	}
}

func TestGuestUnmountFromADeadServer(t *testing.T) {
	for _, vers := range []string{"vers=4.2", "vers=3"} {
		for _, dirty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dirty=%v", vers, dirty), func(t *testing.T) {
				c := newClient(t)
				dir, err := c.mount(within(t, time.Minute), "127.0.0.1", vers)
				if err != nil {
					t.Fatal(err)
				}
				var writer *exec.Cmd
				if dirty {
					writer = dirtyPages(t, dir+"/dirty")
					defer func() { _ = writer.Wait() }()
				}
				speak := machine.Silence(t, "127.0.0.1")
				defer speak()
				if dirty { // as a pod ends: killed, with data that no server has
					_ = writer.Process.Kill()
				}
				begin := time.Now()
				err = c.m.Unmount(within(t, 15*time.Second), dir)
				took := time.Since(begin).Round(time.Millisecond)
				t.Logf("returned after %s: %v", took, err)
				if took > 20*time.Second {
					t.Errorf("the unmount took %s", took)
				}
				left, tableErr := c.m.At(context.Background(), dir)
				if tableErr != nil || (err == nil) != (len(left) == 0) {
					t.Errorf("%v, and mounted is %v, %v", err, left, tableErr)
				}
				// A killed process waits, unkillable, for its data to be written,
				// and holds the mount as long.
				if err != nil && !(dirty && errors.Is(err, fault.Precondition)) {
					t.Error(err)
				}
			})
		}
	}
}

// dirtyPages starts a process that has written to a file and holds it open.
func dirtyPages(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("dd", "of="+path, "bs=64k", "status=none")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if fi, err := os.Stat(path); err == nil && fi.Size() >= 3<<20 {
			return cmd
		}
	}
	t.Fatal("nothing was written")
	return nil
}
