package iscsi

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

const udevRecord = "udev/data/b8:176"

// waitDisk returns when a login has made its disk.
func (w world) waitDisk() {
	for w.get("sys/block/sdbb/dev") == "" {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestMultipathMapIsUsed(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("udev/control", "")
	a := w.attacher(io.Discard)
	go func() { // udev, then multipathd, come later
		w.waitDisk()
		time.Sleep(100 * time.Millisecond)
		w.set(udevRecord, "S:disk/by-id/x\nE:DM_MULTIPATH_DEVICE_PATH=1\n")
		time.Sleep(200 * time.Millisecond)
		w.dm(3, "mpatha", "mpath-3600", "sdbb")
	}()
	d, err := a.Attach(ctx, testTarget(), nil)
	if err != nil || d.Path != w.path("dev/dm-3") || d.Major != 253 || d.Minor != 3 {
		t.Errorf("%+v, %v", d, err)
	}
	if found, ok, err := a.Find(ctx, testTarget()); err != nil || !ok || found != d {
		t.Errorf("Find: %+v, %v, %v", found, ok, err)
	}
}

func TestDiskIsUsedWhenMultipathDoesNotClaimIt(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("udev/control", "")
	w.set(udevRecord, "E:DM_MULTIPATH_DEVICE_PATH=2\n") // "maybe", until it has waited for a second path
	go func() {
		w.waitDisk()
		time.Sleep(200 * time.Millisecond)
		w.set(udevRecord, "E:DM_MULTIPATH_DEVICE_PATH=0\n")
	}()
	d, err := w.attacher(io.Discard).Attach(ctx, testTarget(), nil)
	if err != nil || d.Path != w.path("dev/sdbb") {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestDiskIsUsedWhenUdevDoesNotComeRound(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("udev/control", "")
	a := w.attacher(io.Discard)
	a.deviceTimeout = 300 * time.Millisecond
	d, err := a.Attach(ctx, testTarget(), nil)
	if err != nil || d.Path != w.path("dev/sdbb") {
		t.Errorf("%+v, %v", d, err)
	}
}

const multipathdSocket = "0: 2 @/org/kernel/linux/storage/multipathd\n"

// udev's first event of a disk that is new to multipath says "no path".
func TestMultipathdIsAskedWhatUdevDoesNotKnowYet(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("udev/control", "")
	w.set(udevRecord, "E:DM_MULTIPATH_DEVICE_PATH=0\n")
	w.add("proc/net/unix", multipathdSocket)
	w.set("paths", "sda mpatha\nsdbbb mpathb\n")
	a := w.attacher(io.Discard)
	a.unlistedTimeout = time.Minute
	go func() {
		w.waitDisk()
		time.Sleep(100 * time.Millisecond)
		w.add("paths", "sdbb mpathc")
		time.Sleep(200 * time.Millisecond)
		w.dm(3, "mpathc", "mpath-3600", "sdbb")
	}()
	d, err := a.Attach(ctx, testTarget(), nil)
	if err != nil || d.Path != w.path("dev/dm-3") {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestDiskIsUsedWhenMultipathdLeavesIt(t *testing.T) {
	for name, paths := range map[string]string{"orphan": "sdbb [orphan]\n", "blacklisted": "sda mpatha\n"} {
		w := newWorld(t)
		w.serve(map[string]server{testPortal: open()})
		w.set("udev/control", "")
		w.set(udevRecord, "E:DM_MULTIPATH_DEVICE_PATH=0\n")
		w.add("proc/net/unix", multipathdSocket)
		w.set("paths", paths)
		a := w.attacher(io.Discard)
		a.deviceTimeout = time.Minute
		d, err := a.Attach(ctx, testTarget(), nil)
		if err != nil || d.Path != w.path("dev/sdbb") {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

func TestMapThatIsOpenForAMomentIsWaitedFor(t *testing.T) {
	for _, mode := range []string{"in use", "busy"} {
		w, a := attached(t)
		w.dm(3, "mpatha", "mpath-3600", "sdbb")
		w.set("multipath.mode", mode)
		a.busyTimeout = 10 * time.Second
		time.AfterFunc(200*time.Millisecond, func() { w.set("multipath.mode", "") })
		if err := a.Detach(ctx, testTarget()); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		w.nothingLeft(t, "map "+mode)
	}
}

func TestClaimWithoutMapIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("udev/control", "")
	w.set(udevRecord, "E:DM_MULTIPATH_DEVICE_PATH=1\n")
	a := w.attacher(io.Discard)
	mounted(a)
	a.deviceTimeout = 300 * time.Millisecond
	if _, err := a.Attach(ctx, testTarget(), nil); fault.Kind(err) != fault.Unavailable || !strings.Contains(err.Error(), "multipathd") {
		t.Error(err)
	}
	w.nothingLeft(t, "claim without map")
}

func TestC23MapThatJoinsAnotherVolumeIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	w.open(testIQN, testInitiator, open())
	other := open()
	other.Serial = testSerial[:25] + "fffffff" // the same for multipath
	w.open("iqn.2026-01.io.example:other", testInitiator, other)
	w.dm(3, "mpatha", "mpath-3600", "sdbb", "sdcb")
	if _, err := a.Attach(ctx, testTarget(), nil); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "joins") {
		t.Error(err)
	}
}
