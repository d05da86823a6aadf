//go:build guest

package iscsi

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

// withMultipath runs multipathd so that it takes every disk.
func withMultipath(t *testing.T) {
	t.Helper()
	if err := makePool(); err != nil {
		t.Fatal(err)
	}
	const conf = "/etc/multipath.conf"
	text := "defaults {\n find_multipaths no\n user_friendly_names yes\n}\nblacklist {\n devnode \"^(vd|zd|loop|ram)\"\n}\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	machine.Sh(t, "modprobe", "-a", "dm_multipath", "dm_round_robin")
	machine.Sh(t, "multipathd")
	t.Cleanup(func() {
		_ = exec.Command("multipathd", "shutdown").Run() // it may end before it answers
		machine.Eventually(t, "the end of multipathd", func() bool { return exec.Command("pgrep", "-x", "multipathd").Run() != nil })
		_ = os.Remove(conf)
	})
	machine.Eventually(t, "multipathd", func() bool { return exec.Command("multipathd", "show", "status").Run() == nil })
}

func TestGuestMultipath(t *testing.T) {
	withMultipath(t)
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	target := l.target(portal4)
	t.Cleanup(func() {
		if out := machine.Sh(t, "dmsetup", "ls", "--target", "multipath"); !strings.Contains(out, "No devices") {
			t.Errorf("a map is left: %s", out)
		}
	})
	// It comes and goes while multipathd and udev follow.
	if _, err := a.Attach(ctx, target, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Detach(ctx, target); err != nil {
		t.Fatal(err)
	}
	l.nothingLeft("the first round")
	d := l.attachFor(a, target, nil)
	if !strings.HasPrefix(filepath.Base(d.Path), "dm-") {
		t.Fatalf("attached %s: %s", d.Path, machine.Sh(t, "multipath", "-ll"))
	}
	iqn, lun, ok := a.TargetOfDevice(int(d.Major), int(d.Minor))
	if !ok || iqn != l.iqn || lun != 1 {
		t.Errorf("TargetOfDevice: %s, %d, %v", iqn, lun, ok)
	}
	if found, ok, err := a.Find(ctx, target); err != nil || !ok || found != d {
		t.Errorf("Find: %+v, %v, %v", found, ok, err)
	}
	r := run.New(quiet())
	m, f := mount.New(r), mount.NewFilesystems(r)
	if err := f.Format(ctx, d.Path, "ext4", nil, false); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Mount(ctx, d.Path, dir, "ext4", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/keep.txt", []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Detach(ctx, target); fault.Kind(err) != fault.Precondition {
		t.Errorf("detached under a mounted map: %v", err)
	}
	machine.Sh(t, "zfs", "set", fmt.Sprintf("volsize=%d", 2*size), l.zvol)
	if err := a.Rescan(ctx, target); err != nil {
		t.Error(err)
	}
	if got := strings.TrimSpace(machine.Sh(t, "blockdev", "--getsize64", d.Path)); got != fmt.Sprint(2*size) {
		t.Errorf("the map has %s bytes", got)
	}
	if grew, err := f.Grow(ctx, d.Path, dir); err != nil || !grew {
		t.Errorf("Grow: %v, %v", grew, err)
	}
	if b, err := os.ReadFile(dir + "/keep.txt"); err != nil || string(b) != "kept" {
		t.Errorf("keep.txt: %q, %v", b, err)
	}
	if err := m.Unmount(ctx, dir); err != nil {
		t.Fatal(err)
	}
}
