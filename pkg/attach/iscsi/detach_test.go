package iscsi

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

func attached(t *testing.T) (world, *Attacher) {
	t.Helper()
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	a := w.attacher(io.Discard)
	mounted(a)
	if _, err := a.Attach(ctx, testTarget(), nil); err != nil {
		t.Fatal(err)
	}
	return w, a
}

func TestDetachRefusesADiskInUse(t *testing.T) {
	for name, use := range map[string]func(w world, a *Attacher){
		"mounted":          func(_ world, a *Attacher) { mounted(a, mount.Info{Target: "/g", FSType: "ext4", Major: 8, Minor: 176}) },
		"raw volume bound": func(_ world, a *Attacher) { mounted(a, mount.Info{Target: "/t", FSType: "devtmpfs", Root: "/sdbb"}) },
		"other namespace":  func(w world, _ *Attacher) { w.mkdir("sys/fs/ext4/sdbb") },
		"held by LVM":      func(w world, _ *Attacher) { w.dm(7, "vg-lv", "LVM-abc", "sdbb") },
		"swap": func(w world, _ *Attacher) {
			w.set("proc/swaps", "Filename\tType\n"+w.path("dev/sdbb")+" partition 1 0 -2\n")
		},
		"multipath mounted": func(w world, a *Attacher) {
			w.dm(3, "mpatha", "mpath-3600", "sdbb")
			mounted(a, mount.Info{Target: "/g", FSType: "xfs", Major: 253, Minor: 3})
		},
		"multipath bound": func(w world, a *Attacher) {
			w.dm(3, "mpatha", "mpath-3600", "sdbb")
			mounted(a, mount.Info{Target: "/t", FSType: "devtmpfs", Root: "/dm-3"})
		},
		"multipath held": func(w world, _ *Attacher) {
			dm := w.dm(3, "mpatha", "mpath-3600", "sdbb")
			w.dm(4, "vg-lv", "LVM-abc", dm)
		},
		"multipath elsewhere": func(w world, _ *Attacher) { w.dm(3, "mpatha", "mpath-3600", "sdbb"); w.mkdir("sys/fs/xfs/dm-3") },
		"multipath open":      func(w world, _ *Attacher) { w.dm(3, "mpatha", "mpath-3600", "sdbb"); w.set("multipath.mode", "in use") },
	} {
		w, a := attached(t)
		use(w, a)
		if err := a.Detach(ctx, testTarget()); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v", name, err)
		}
		if len(w.sessionsLeft()) != 1 || len(w.recordsLeft()) != 1 {
			t.Errorf("%s: session or record are gone", name)
		}
	}
}

func TestDetachOfAMultipathDisk(t *testing.T) {
	w, a := attached(t)
	w.dm(3, "mpatha", "mpath-3600", "sdbb")
	if err := a.Detach(ctx, testTarget()); err != nil {
		t.Fatal(err)
	}
	calls := strings.Split(w.get("calls"), "\n")
	order := ""
	for _, c := range calls {
		for _, step := range []string{"multipath -f mpatha", "blockdev --flushbufs", " -u", "-o delete"} {
			if strings.Contains(c, step) {
				order += step + ";"
			}
		}
	}
	if want := "multipath -f mpatha;blockdev --flushbufs; -u;-o delete;"; !strings.HasSuffix(order, want) {
		t.Errorf("the order was %s", order)
	}
	w.nothingLeft(t, "multipath")
}

func TestC25DetachWithoutRecord(t *testing.T) {
	w, a := attached(t)
	w.remove("etc/nodes")
	iqn, lun, ok := a.TargetOfDevice(8, 176)
	if !ok || iqn != testIQN || lun != 1 {
		t.Fatalf("TargetOfDevice = %q, %d, %v", iqn, lun, ok)
	}
	// A new process knows nothing else.
	a = w.attacher(io.Discard)
	mounted(a)
	if err := a.Detach(ctx, attach.Target{IQN: iqn}); err != nil {
		t.Error(err)
	}
	w.nothingLeft(t, "no record")
}

func TestTargetOfDevice(t *testing.T) {
	w, a := attached(t)
	w.open("iqn.2026-01.io.example:other", testInitiator, open())
	w.dm(3, "mpatha", "mpath-3600", "sdbb")
	w.dm(4, "vg-one", "LVM-abc", "dm-3")
	w.dm(5, "vg-two", "LVM-def", "sdbb", "sdcb")
	w.dm(6, "empty", "LVM-ghi")
	w.block("devices/virtual/block/zd0", "zd0", 230, 0)
	for _, c := range []struct {
		major, minor int
		iqn          string
	}{
		{8, 176, testIQN},
		{253, 3, testIQN},
		{253, 4, testIQN},
		{8, 336, "iqn.2026-01.io.example:other"},
		{253, 5, ""}, // on two targets
		{253, 6, ""},
		{230, 0, ""},
		{7, 7, ""},
	} {
		iqn, lun, ok := a.TargetOfDevice(c.major, c.minor)
		if iqn != c.iqn || ok != (c.iqn != "") || ok && lun != 1 {
			t.Errorf("%d:%d = %q, %d, %v", c.major, c.minor, iqn, lun, ok)
		}
	}
}

func TestDetachIsVerified(t *testing.T) {
	for mode, kind := range map[string]error{"refuse": fault.Unavailable, "no daemon": fault.Unavailable} {
		w, a := attached(t)
		w.set("logout.mode", mode)
		if err := a.Detach(ctx, testTarget()); fault.Kind(err) != kind {
			t.Errorf("%s: %v", mode, err)
		}
		if len(w.recordsLeft()) == 0 {
			t.Errorf("%s: the record went before the session", mode)
		}
	}
	w, a := attached(t)
	w.set("delete.mode", "lie")
	if err := a.Detach(ctx, testTarget()); fault.Kind(err) != fault.Unavailable {
		t.Errorf("a record that stays: %v", err)
	}
	// A logout that returns 0 and leaves the session is found out too.
	w, a = attached(t)
	w.set("logout.mode", "lie")
	short, cancel := context.WithTimeout(ctx, sessionTimeout/20)
	defer cancel()
	if err := a.Detach(short, testTarget()); err == nil {
		t.Error("a logout that lies is a success")
	}
}

func TestDetachWaitsForTheSessionToEnd(t *testing.T) {
	w, a := attached(t)
	w.set("logout.mode", "lie")
	go func() {
		for len(w.calls(" -u")) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond)
		w.close("session1")
	}()
	if err := a.Detach(ctx, testTarget()); err != nil {
		t.Error(err)
	}
	w.nothingLeft(t, "a session that ends late")
}

func TestDetachOfALostSessionDoesNotTouchItsDisk(t *testing.T) {
	w, a := attached(t)
	w.set("sys/class/iscsi_session/session1/state", "FAILED\n")
	w.set("blockdev.mode", "would hang")
	if err := a.Detach(ctx, testTarget()); err != nil {
		t.Error(err)
	}
	w.nothingLeft(t, "lost session")
}

func TestDetachFailsWhenTheFlushFails(t *testing.T) {
	w, a := attached(t)
	w.set("blockdev.mode", "Input/output error")
	if err := a.Detach(ctx, testTarget()); fault.Kind(err) != fault.Unavailable {
		t.Error(err)
	}
	if len(w.sessionsLeft()) != 1 {
		t.Error("logged out before the flush")
	}
}

func TestDetachRemovesAnUnfinishedRecord(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	w.set("etc/."+interfaceName(testInitiator)+"-"+testIQN, "node.session.auth.password = left by a crash")
	if err := a.Detach(ctx, testTarget()); err != nil {
		t.Error(err)
	}
	w.nothingLeft(t, "unfinished record")
	if w.get("calls") != "" {
		t.Errorf("detaching nothing started %s", w.get("calls"))
	}
}

func TestRescan(t *testing.T) {
	w, a := attached(t)
	if err := a.Rescan(ctx, testTarget()); err != nil {
		t.Error(err)
	}
	if calls := w.calls("/rescan"); len(calls) != 1 {
		t.Errorf("rescans: %q", calls)
	}
	w.dm(3, "mpatha", "mpath-3600", "sdbb")
	if err := a.Rescan(ctx, testTarget()); err != nil || len(w.calls("multipathd resize map mpatha")) != 1 {
		t.Errorf("multipath: %v", err)
	}
	w.set("multipathd.mode", "fail")
	if err := a.Rescan(ctx, testTarget()); fault.Kind(err) != fault.Unavailable {
		t.Errorf("a map that cannot be resized: %v", err)
	}
	w.set("sys/class/iscsi_session/session1/state", "FAILED\n")
	if err := a.Rescan(ctx, testTarget()); fault.Kind(err) != fault.Unavailable {
		t.Errorf("lost session: %v", err)
	}
	other := testTarget()
	other.IQN += "0"
	if err := a.Rescan(ctx, other); fault.Kind(err) != fault.Precondition {
		t.Errorf("not attached: %v", err)
	}
}

func TestRescanOfSeveralPaths(t *testing.T) {
	w, a := attached(t)
	w.open(testTarget().IQN, testTarget().Initiator, open())
	w.dm(3, "mpatha", "mpath-3600", "sdbb", "sdcb")
	if err := a.Rescan(ctx, testTarget()); err != nil || len(w.calls("/rescan")) != 2 || len(w.calls("multipathd resize map mpatha")) != 1 {
		t.Errorf("%v, started %s", err, w.get("calls"))
	}
	w.set("sys/class/iscsi_session/session2/state", "FAILED\n")
	if err := a.Rescan(ctx, testTarget()); fault.Kind(err) != fault.Unavailable || len(w.calls("multipathd resize map mpatha")) != 1 {
		t.Errorf("one path is lost: %v", err)
	}
}

func TestReachable(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w world)
		kind  error
	}{
		"well":              {func(world) {}, nil},
		"session lost":      {func(w world) { w.set("sys/class/iscsi_session/session1/state", "FAILED\n") }, fault.Unavailable},
		"disk blocked":      {func(w world) { w.set("sys/block/sdbb/device/state", "blocked\n") }, fault.Unavailable},
		"disk offline":      {func(w world) { w.set("sys/block/sdbb/device/state", "transport-offline\n") }, fault.Unavailable},
		"session ended":     {func(w world) { w.remove("sys/class/iscsi_session/session1") }, fault.Precondition},
		"disk without more": {func(w world) { w.remove("sys/block/sdbb/device/state") }, fault.Unavailable},
	} {
		w, a := attached(t)
		c.spoil(w)
		if err := a.Reachable(ctx, testTarget()); fault.Kind(err) != c.kind || (err == nil) != (c.kind == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
