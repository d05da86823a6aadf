package iscsi

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

const udevRecord = "udev/data/b8:176"

func TestMultipathMapIsUsed(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("udev/control", "")
	a := w.attacher(io.Discard)
	go func() { // udev, then multipathd, come later
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
