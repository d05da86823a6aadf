package mount

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func (w world) mounted(t *testing.T, line string) (*Filesystems, string) {
	t.Helper()
	device := w.volume(t, mib)
	put(t, device, "ext4", 1080)
	w.add("mountinfo", line)
	f := w.filesystems()
	f.number = func(d string) (int, int, bool) { return 8, 16, d == device }
	f.blocks = func(path string) (uint64, error) {
		if path != "/g" {
			return 0, os.ErrNotExist
		}
		return uint64(len(w.get("blocks"))), nil
	}
	return f, device
}

const mountedLine = "40 1 8:16 / /g rw,relatime - ext4 /dev/sdb rw"

func TestGrow(t *testing.T) {
	for mode, want := range map[string]bool{"": true, "full": false} {
		w := newWorld(t)
		f, device := w.mounted(t, mountedLine)
		w.set("resize2fs.mode", mode)
		if grew, err := f.Grow(ctx, device, "/g"); err != nil || grew != want {
			t.Errorf("%q: %v, %v", mode, grew, err)
		}
		if got := w.calls("resize2fs"); !slices.Equal(got, []string{"resize2fs " + device}) {
			t.Errorf("%q: started %q", mode, got)
		}
	}
}

func TestGrowLeavesWhatIsReadOnly(t *testing.T) {
	w := newWorld(t)
	f, device := w.mounted(t, "40 1 8:16 / /g ro,relatime - ext4 /dev/sdb ro")
	if grew, err := f.Grow(ctx, device, "/g"); err != nil || grew || w.get("calls") != "" {
		t.Errorf("%v, %v, started %s", grew, err, w.get("calls"))
	}
}

func TestGrowOfWhatIsNotMountedThere(t *testing.T) {
	w := newWorld(t)
	f, device := w.mounted(t, "40 1 8:32 / /g rw,relatime - ext4 /dev/sdc rw")
	for _, path := range []string{"/g", "/elsewhere"} {
		if _, err := f.Grow(ctx, device, path); !errors.Is(err, fault.Precondition) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if w.get("calls") != "" {
		t.Errorf("started %s", w.get("calls"))
	}
}

// mount-utils takes blkid's status 2 for "no filesystem, nothing to grow".
func TestGrowOfAnUnreadableDiskIsNoSuccess(t *testing.T) {
	w := newWorld(t)
	f, device := w.mounted(t, mountedLine)
	w.set("blkid.mode", "2")
	if grew, err := f.Grow(ctx, device, "/g"); !errors.Is(err, fault.Unavailable) || grew {
		t.Errorf("%v, %v", grew, err)
	}
}

func TestGrowFailures(t *testing.T) {
	w := newWorld(t)
	f, device := w.mounted(t, mountedLine)
	w.set("resize2fs.mode", "fail")
	if _, err := f.Grow(ctx, device, "/g"); !errors.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	w.set("resize2fs.mode", "hang")
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := f.Grow(short, device, "/g"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	w.allGone(t)
}
