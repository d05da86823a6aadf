package mount

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

var ctx = context.Background()

func TestMountIsVerifiedInTheTable(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	if err := m.Mount(ctx, "[2001:db8::1]:/tank/v", "/g", "nfs", []string{"hard", "vers=4.2"}, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := w.calls("mount"), []string{"mount -t nfs -o hard,vers=4.2 [2001:db8::1]:/tank/v /g"}; !slices.Equal(got, want) {
		t.Errorf("started %q, want %q", got, want)
	}
	w.set("mount.mode", "lie")
	if err := m.Mount(ctx, "192.0.2.1:/tank/v", "/h", "nfs", nil, nil); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a mount tool that does nothing and returns 0: %v", err)
	}
	// One mount at the target before does not stand in for the new one.
	if err := m.Mount(ctx, "192.0.2.1:/tank/v", "/g", "nfs", nil, nil); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a mount tool that does nothing at a mount point: %v", err)
	}
}

func TestMountRefusesTextThatWouldBeAnOption(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	for _, c := range []struct{ source, target, fsType string }{
		{"", "/g", "ext4"},
		{"--bind", "/g", "ext4"},
		{"/dev/sda", "g", "ext4"},
		{"/dev/sda", "-v", "ext4"},
		{"/dev/sda", "/g", "ext4,ro"},
		{"/dev/sda", "/g", "-o"},
	} {
		if err := m.Mount(ctx, c.source, c.target, c.fsType, nil, nil); !errors.Is(err, fault.Invalid) {
			t.Errorf("Mount(%q, %q, %q): %v", c.source, c.target, c.fsType, err)
		}
	}
	if calls := w.get("calls"); calls != "" {
		t.Errorf("something was started: %s", calls)
	}
}

func TestMountFailuresHaveAKind(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	w.set("mount.mode", "refused")
	if err := m.Mount(ctx, "192.0.2.1:/v", "/g", "nfs", nil, nil); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a server that does not answer: %v", err)
	}
	w.set("mount.mode", "echo")
	if err := m.Mount(ctx, "/dev/sda", "/g", "ext4", []string{"nosuch"}, nil); !errors.Is(err, fault.Precondition) {
		t.Errorf("an option that the kernel does not know: %v", err)
	}
	w.without(t, "mount")
	if err := m.Mount(ctx, "/dev/sda", "/g", "ext4", nil, nil); !errors.Is(err, fault.Unavailable) {
		t.Errorf("no mount tool: %v", err)
	}
}

func TestC58SensitiveMountOptionsAreMasked(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	m := w.mounter(&log)
	w.set("mount.mode", "echo")
	err := m.Mount(ctx, "192.0.2.1:/v", "/g", "nfs", []string{"hard"}, []string{"password=sentinel-1", "sentinel-2"})
	if err == nil {
		t.Fatal("the fake did not fail")
	}
	for _, secret := range []string{"sentinel-1", "sentinel-2"} {
		if strings.Contains(err.Error(), secret) || strings.Contains(log.String(), secret) {
			t.Errorf("%s leaks: error %q, log %s", secret, err, log.String())
		}
		if !strings.Contains(w.get("calls"), secret) {
			t.Errorf("%s did not reach mount", secret)
		}
	}
	if !strings.Contains(err.Error(), "192.0.2.1:/v") || !strings.Contains(err.Error(), "hard") {
		t.Errorf("what is no secret must stay readable: %v", err)
	}
}

func TestC35HungMountIsKilledAndReaped(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	w.set("mount.mode", "hang")
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		begin := time.Now()
		err := m.Mount(short, "192.0.2.1:/v", "/g", "nfs", nil, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a hung mount: %v", err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("a hung mount was left after %s", took)
		}
	}
	w.set("mount.mode", "")
	if err := m.Mount(ctx, "192.0.2.2:/v", "/g", "nfs", nil, nil); err != nil {
		t.Errorf("the next mount: %v", err)
	}
	w.allGone(t)
}

// allGone verifies that the children that hung are neither running nor zombies.
func (w world) allGone(t *testing.T) {
	t.Helper()
	pids := strings.Fields(w.get("pids"))
	if len(pids) == 0 {
		t.Error("no child hung")
	}
	for _, p := range pids {
		pid, _ := strconv.Atoi(p)
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

func TestBind(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	w.add("mountinfo", "40 1 8:16 / /g rw,relatime - ext4 /dev/sdb rw")
	if err := m.Bind(ctx, "/g", "/t", false); err != nil {
		t.Fatal(err)
	}
	top := w.top(t, "/t")
	if top.place() != (place{8, 16, "/"}) || top.ReadOnly() {
		t.Errorf("bound %+v", top)
	}
	if err := m.Bind(ctx, "/g", "/ro", true); err != nil {
		t.Fatal(err)
	}
	top = w.top(t, "/ro")
	// The fake's bind comes with nosuid and nodev, as under a hardened parent.
	if want := []string{"ro", "nosuid", "nodev", "relatime"}; !top.ReadOnly() || !slices.Equal(top.Options, want) {
		t.Errorf("a read-only bind has %v, want %v", top.Options, want)
	}
}

func TestBindOfADeviceNodeFollowsItsLink(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	dev := t.TempDir()
	w.add("mountinfo", "41 1 0:5 / "+dev+" rw - devtmpfs udev rw")
	if err := os.WriteFile(dev+"/dm-3", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dm-3", dev+"/volume"); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(ctx, dev+"/volume", "/t", false); err != nil {
		t.Fatal(err)
	}
	if top := w.top(t, "/t"); top.Root != "/dm-3" {
		t.Errorf("bound %s", top.Root)
	}
}

func TestBindThatFailsIsUndone(t *testing.T) {
	for mode, kind := range map[string]error{
		"no remount":   fault.Precondition,
		"idle remount": fault.Unavailable, // returned 0 and changed nothing
		"elsewhere":    fault.Precondition,
		"lie":          fault.Unavailable,
	} {
		w := newWorld(t)
		m := w.mounter(io.Discard)
		w.add("mountinfo", "40 1 8:16 / /g rw,relatime - ext4 /dev/sdb rw")
		w.add("mountinfo", "41 1 0:60 / /t rw - tmpfs below rw")
		before := w.get("mountinfo")
		w.set("mount.mode", mode)
		if err := m.Bind(ctx, "/g", "/t", true); !errors.Is(err, kind) {
			t.Errorf("%s: %v", mode, err)
		}
		if after := w.get("mountinfo"); after != before {
			t.Errorf("%s: the table was\n%sand is\n%s", mode, before, after)
		}
	}
}

func (w world) top(t *testing.T, target string) Info {
	t.Helper()
	all, err := w.mounter(io.Discard).At(ctx, target)
	if err != nil || len(all) == 0 {
		t.Fatalf("nothing is mounted at %s: %v", target, err)
	}
	return all[len(all)-1]
}
