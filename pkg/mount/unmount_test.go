package mount

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestC08UnmountOfNothingIsASuccess(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	for range 2 {
		if err := m.Unmount(ctx, "/no/such/place"); err != nil {
			t.Error(err)
		}
	}
	if w.get("calls") != "" {
		t.Errorf("started %s", w.get("calls"))
	}
}

func TestC16UnmountThatLiesIsAnError(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	target := t.TempDir()
	if err := os.WriteFile(target+"/keep.txt", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.add("mountinfo", "40 1 8:16 / "+target+" rw - ext4 /dev/sdb rw")
	w.set("umount.mode", "lie")
	if err := m.Unmount(ctx, target); !errors.Is(err, fault.Unavailable) {
		t.Errorf("still mounted: %v", err)
	}
	w.set("umount.mode", "")
	if err := m.Unmount(ctx, target); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(target + "/keep.txt"); err != nil {
		t.Errorf("unmount removed something: %v", err)
	}
}

func TestUnmountTakesAwayEveryLayer(t *testing.T) {
	w := newWorld(t)
	m := w.mounter(io.Discard)
	before := w.get("mountinfo")
	for _, id := range []string{"40", "41", "42"} {
		w.add("mountinfo", id+" 1 8:16 / /t rw - ext4 /dev/sdb rw")
	}
	if err := m.Unmount(ctx, "/t"); err != nil {
		t.Error(err)
	}
	if got := w.get("mountinfo"); got != before {
		t.Errorf("left over: %s", got)
	}
}

func TestUnmountOfABusyMount(t *testing.T) {
	for _, fsType := range []string{"ext4", "nfs4"} {
		w := newWorld(t)
		w.add("mountinfo", "40 1 8:16 / /t rw - "+fsType+" /dev/sdb rw")
		w.set("umount.mode", "busy")
		if err := w.mounter(io.Discard).Unmount(ctx, "/t"); !errors.Is(err, fault.Precondition) {
			t.Errorf("%s: %v", fsType, err)
		}
		if calls := w.calls("umount"); len(calls) != 1 || strings.Contains(calls[0], "force") {
			t.Errorf("%s: a mount that is in use was forced: %q", fsType, calls)
		}
	}
}

func TestUnmountThatFailedButWorkedIsASuccess(t *testing.T) {
	w := newWorld(t)
	w.add("mountinfo", "40 1 8:16 / /t rw - ext4 /dev/sdb rw")
	w.set("umount.mode", "done but failed")
	if err := w.mounter(io.Discard).Unmount(ctx, "/t"); err != nil {
		t.Error(err)
	}
}

func TestUnmountOfADeadNFSServerIsForced(t *testing.T) {
	w := newWorld(t)
	w.add("mountinfo", "40 1 0:50 / /t rw - nfs4 192.0.2.1:/v rw")
	w.set("umount.mode", "dead server")
	short, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	if err := w.mounter(io.Discard).Unmount(short, "/t"); err != nil {
		t.Error(err)
	}
	w.allGone(t)
}

func TestUnmountOfADiskIsNeverForced(t *testing.T) {
	w := newWorld(t)
	w.add("mountinfo", "40 1 8:16 / /t rw - xfs /dev/sdb rw")
	w.set("umount.mode", "dead server")
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := w.mounter(io.Discard).Unmount(short, "/t"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if calls := w.calls("umount"); len(calls) != 1 {
		t.Errorf("started %q", calls)
	}
	w.allGone(t)
}

func TestUnmountOfADiskThatFailsIsNotForced(t *testing.T) {
	for fsType, force := range map[string]bool{"xfs": false, "nfs4": true} {
		w := newWorld(t)
		w.add("mountinfo", "40 1 8:16 / /t rw - "+fsType+" /dev/sdb rw")
		w.set("umount.mode", "fails")
		if err := w.mounter(io.Discard).Unmount(ctx, "/t"); !errors.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", fsType, err)
		}
		if forced := strings.Contains(w.get("calls"), "--force"); forced != force {
			t.Errorf("%s: started %s", fsType, w.get("calls"))
		}
	}
}
