//go:build guest

package mount

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	mountutils "k8s.io/mount-utils"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestGuestMountTableWithAnEmptySource(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	dir := mountpoint(t, m)
	if err := syscall.Mount("", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	got, err := m.At(ctx, dir)
	if err != nil || len(got) != 1 || got[0].Source != "" || got[0].FSType != "tmpfs" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := mountutils.ParseMountInfo(tablePath); err == nil {
		t.Error("mount-utils reads such a table now: use its parser")
	}
}

func TestGuestMountTableWithOddNames(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	for _, name := range []string{"with space", "tab\tnewline\n", `back\slash`, "non\u00a0breaking", "hash#", "ünïcode"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := m.Mount(ctx, "tmpfs", dir, "tmpfs", []string{"size=1m"}, nil); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if err := m.Unmount(ctx, dir); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if got, err := m.At(ctx, dir); err != nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}

// tmpfs mounts a small filesystem with options of the mount point.
func tmpfs(t *testing.T, m *Mounter, options ...string) string {
	t.Helper()
	dir := mountpoint(t, m)
	if err := m.Mount(guestContext(t), "tmpfs", dir, "tmpfs", append(options, "size=4m"), nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestGuestBind(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	source := tmpfs(t, m, "nosuid", "nodev", "noexec")
	write(t, source+"/keep.txt", "kept")
	rw, ro := mountpoint(t, m), mountpoint(t, m)
	if err := m.Bind(ctx, source, rw, false); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(ctx, source, ro, true); err != nil {
		t.Fatal(err)
	}
	if got := read(t, ro+"/keep.txt"); got != "kept" {
		t.Errorf("keep.txt holds %q", got)
	}
	if err := os.WriteFile(ro+"/new", nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing through the read-only bind: %v", err)
	}
	write(t, rw+"/new", "x")
	write(t, source+"/new", "x")
	for _, dir := range []string{rw, ro} {
		got, err := m.At(ctx, dir)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %v, %v", dir, got, err)
		}
		for _, o := range []string{"nosuid", "nodev", "noexec"} {
			if !slices.Contains(got[0].Options, o) {
				t.Errorf("the bind lost %s: %v", o, got[0].Options)
			}
		}
	}
	// A bind of a plain directory below the mount shows that directory.
	if err := os.Mkdir(source+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	sub := mountpoint(t, m)
	if err := m.Bind(ctx, source+"/sub", sub, true); err != nil {
		t.Error(err)
	}
}

func TestGuestC01DeviceNodeIsBoundOnAFile(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	_, device := zvol(t, 8*mib) // a link to /dev/zdN
	target := filepath.Join(t.TempDir(), "volume")
	write(t, target, "")
	t.Cleanup(func() { _ = m.Unmount(context.Background(), target) })
	for _, readOnly := range []bool{false, true} {
		if err := m.Bind(ctx, device, target, readOnly); err != nil {
			t.Fatal(err)
		}
		major, minor, ok := deviceNumber(target)
		wantMajor, wantMinor, _ := deviceNumber(device)
		if !ok || major != wantMajor || minor != wantMinor {
			t.Errorf("%s is %d:%d, want %d:%d", target, major, minor, wantMajor, wantMinor)
		}
		if err := m.Unmount(ctx, target); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Lstat(target); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("after the unmount: %v, %v", fi, err)
		}
	}
}

func TestGuestFailedBindLeavesNothing(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	source := tmpfs(t, m)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if err := m.Bind(ctx, source, file, false); !errors.Is(err, fault.Precondition) {
		t.Errorf("a directory on a file: %v", err)
	}
	if err := m.Bind(ctx, source+"/missing", t.TempDir(), false); !errors.Is(err, fault.Precondition) {
		t.Errorf("a source that is missing: %v", err)
	}
	if got, err := m.At(ctx, file); err != nil || len(got) != 0 {
		t.Errorf("left over: %v, %v", got, err)
	}
}

func TestGuestUnmountOfABusyMount(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	dir := tmpfs(t, m)
	f, err := os.Create(dir + "/open")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Unmount(ctx, dir); !errors.Is(err, fault.Precondition) {
		t.Errorf("an open file: %v", err)
	}
	if got, err := m.At(ctx, dir); err != nil || len(got) != 1 {
		t.Errorf("the busy mount: %v, %v", got, err)
	}
	f.Close()
	if err := m.Unmount(ctx, dir); err != nil {
		t.Error(err)
	}
}

func TestGuestUnmountTakesAwayEveryLayer(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	dir := tmpfs(t, m)
	write(t, dir+"/keep.txt", "kept")
	other := mountpoint(t, m)
	for range 4 {
		if err := m.Bind(ctx, dir, other, false); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := m.At(ctx, other); err != nil || len(got) != 4 {
		t.Fatalf("stacked: %v, %v", got, err)
	}
	if err := m.Unmount(ctx, other); err != nil {
		t.Fatal(err)
	}
	if got, err := m.At(ctx, other); err != nil || len(got) != 0 {
		t.Errorf("left over: %v, %v", got, err)
	}
	if got := read(t, dir+"/keep.txt"); got != "kept" {
		t.Errorf("keep.txt holds %q", got)
	}
}

func TestGuestMountFollowsLinksAboveTheTarget(t *testing.T) {
	ctx := guestContext(t)
	m, _ := guestTools(t)
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/real/target", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	target := dir + "/link/target"
	if err := m.Mount(ctx, "tmpfs", target, "tmpfs", nil, nil); err != nil {
		t.Error(err)
	}
	if err := m.Unmount(ctx, target); err != nil {
		t.Error(err)
	}
	if exec.Command("mountpoint", "-q", dir+"/real/target").Run() == nil {
		t.Error("still mounted")
	}
}
