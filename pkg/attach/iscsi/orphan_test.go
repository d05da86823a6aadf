package iscsi

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

func TestDetachOrphan(t *testing.T) {
	w, a := attached(t)
	w.dm(3, "mpatha", "mpath-3600", "sdbb")
	w.set("etc/."+interfaceName(testInitiator)+"-"+testIQN, "node.session.auth.password = left by a crash")
	removed, err := a.DetachOrphan(ctx, testIQN, testInitiator)
	if want := []string{"session 1", "record 192.0.2.10,3260", "unfinished record"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v", removed, err)
	}
	w.nothingLeft(t, "orphan")
	if removed, err := a.DetachOrphan(ctx, testIQN, testInitiator); err != nil || len(removed) > 0 {
		t.Errorf("again: %q, %v", removed, err)
	}
}

func TestDetachOrphanOfARecordAlone(t *testing.T) {
	w, a := attached(t)
	w.close("session1")
	if removed, err := a.DetachOrphan(ctx, testIQN, testInitiator); err != nil || !slices.Equal(removed, []string{"record 192.0.2.10,3260"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	w.nothingLeft(t, "orphan record")
	w.set("etc/."+interfaceName(testInitiator)+"-"+testIQN, "node.sess")
	if removed, err := a.DetachOrphan(ctx, testIQN, testInitiator); err != nil || !slices.Equal(removed, []string{"unfinished record"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	w.nothingLeft(t, "unfinished record")
}

// Whatever may use the disk keeps it, though no record says so.
func TestDetachOrphanLeavesADiskInUse(t *testing.T) {
	for name, use := range map[string]func(w world, a *Attacher){
		"mounted":     func(_ world, a *Attacher) { mounted(a, mount.Info{Target: "/g", FSType: "ext4", Major: 8, Minor: 176}) },
		"bound":       func(_ world, a *Attacher) { mounted(a, mount.Info{Target: "/t", FSType: "devtmpfs", Root: "/sdbb"}) },
		"held by LVM": func(w world, _ *Attacher) { w.dm(7, "vg-lv", "LVM-abc", "sdbb") },
		"loop device": func(w world, _ *Attacher) { w.set("sys/block/loop3/loop/backing_file", w.path("dev/sdbb")+"\n") },
		"claimed":     func(w world, _ *Attacher) { w.set("claimed sdbb.mode", "yes") },
		"open":        func(w world, _ *Attacher) { w.process(7, "devtmpfs", w.path("dev/sdbb")) },
		"open by a node": func(w world, _ *Attacher) {
			w.set("other/data", "8:176")
			w.process(7, "overlay", w.path("other/data"))
		},
		"open, elsewhere": func(w world, _ *Attacher) { w.process(7, "nfs4", w.path("dev/sdbb")) },
		"multipath open": func(w world, _ *Attacher) {
			w.dm(3, "mpatha", "mpath-3600", "sdbb")
			w.process(7, "devtmpfs", w.path("dev/dm-3"))
		},
		"multipath claimed": func(w world, _ *Attacher) {
			w.dm(3, "mpatha", "mpath-3600", "sdbb")
			w.set("claimed dm-3.mode", "yes")
		},
		"mounted in another namespace": func(w world, _ *Attacher) {
			w.process(7, "devtmpfs", "/dev/null")
			w.set("proc/7/mountinfo", "9 1 8:176 / /data rw - vfat /dev/sdbb rw\n")
		},
		"bound in another namespace": func(w world, _ *Attacher) {
			w.process(7, "devtmpfs", "/dev/null")
			w.set("proc/7/mountinfo", "9 1 0:6 /sdbb /data rw - devtmpfs udev rw\n")
		},
	} {
		w, a := attached(t)
		use(w, a)
		removed, err := a.DetachOrphan(ctx, testIQN, testInitiator)
		if fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "in use") || len(removed) > 0 {
			t.Errorf("%s: %q, %v", name, removed, err)
		}
		if len(w.sessionsLeft()) != 1 || len(w.recordsLeft()) != 1 {
			t.Errorf("%s: session or record are gone", name)
		}
	}
}

// What has nothing to do with the disk keeps nothing: other files, the checker
// of multipathd, and processes that end.
func TestDetachOrphanIsNotHeldUpByOthers(t *testing.T) {
	w, a := attached(t)
	w.set("other/file", "no device")
	w.process(7, "overlay", w.path("other/file"))
	w.set("dev/sdz", "8:400")
	w.process(8, "devtmpfs", w.path("dev/sdz"))
	w.process(9, "devtmpfs", w.path("dev/sdbb"))
	w.set("proc/9/comm", "multipathd\n")
	w.mkdir("proc/10") // it has ended
	w.process(11, "nfs4", "/srv/pod/8:176")
	if _, err := a.DetachOrphan(ctx, testIQN, testInitiator); err != nil {
		t.Error(err)
	}
	w.nothingLeft(t, "orphan")
}

func TestDetachOrphanLeavesAnotherInitiators(t *testing.T) {
	const other = "iqn.2026-01.io.github.tarn-csi:a:node:worker-2"
	w, a := attached(t)
	if _, err := a.DetachOrphan(ctx, testIQN, other); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), testInitiator) {
		t.Errorf("a session: %v", err)
	}
	w.close("session1")
	if _, err := a.DetachOrphan(ctx, testIQN, other); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "interface") {
		t.Errorf("a record: %v", err)
	}
	if len(w.recordsLeft()) != 1 {
		t.Error("another node's record is gone")
	}
	// A record that was discovered, and one that iscsiadm was cut off in.
	w.remove("etc/nodes")
	for _, path := range []string{"192.0.2.10,3260,1/default", "192.0.2.10,3260"} {
		w.set("etc/nodes/"+testIQN+"/"+path, "# BEG")
		if removed, err := a.DetachOrphan(ctx, testIQN, testInitiator); fault.Kind(err) != fault.Precondition || len(removed) > 0 {
			t.Errorf("%s: %q, %v", path, removed, err)
		}
		w.remove("etc/nodes")
	}
	if calls := w.calls("-u"); len(calls) > 0 {
		t.Errorf("a logout: %v", calls)
	}
}

// A session that is lost, of a server that answers nothing, is ended all the
// same; an iscsiadm that hangs is ended with the caller's time.
func TestDetachOrphanOfADeadServer(t *testing.T) {
	w, a := attached(t)
	w.set("sys/class/iscsi_session/session1/state", "FAILED\n")
	w.set("claimed sdbb.mode", "never asked, it could hang")
	if _, err := a.DetachOrphan(ctx, testIQN, testInitiator); err != nil {
		t.Error(err)
	}
	if calls := w.calls("blockdev"); len(calls) > 0 {
		t.Errorf("a flush of a lost disk: %v", calls)
	}
	w.nothingLeft(t, "dead server")

	w, a = attached(t)
	w.set("iscsiadm.mode", "hang")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := a.DetachOrphan(short, testIQN, testInitiator); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %s", d)
	}
}

func TestAttachments(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	if list, err := a.Attachments(ctx); err != nil || len(list) > 0 {
		t.Errorf("nothing: %v, %v", list, err)
	}
	const prefix = "iqn.2026-01.io.github.tarn-csi:a:"
	w.open(prefix+"1", testInitiator, open())
	w.set("sys/class/iscsi_connection/connection1:0/persistent_address", "192.0.2.11\n")
	w.open(prefix+"2", testInitiator, open())
	w.set("sys/devices/platform/host2/session2/iscsi_session/session2/state", "FAILED\n")
	w.set("etc/nodes/"+prefix+"1/192.0.2.99,3260", "")
	w.set("etc/nodes/"+prefix+"2/192.0.2.12,3260", "")
	w.set("etc/nodes/"+prefix+"3/2001:db8::1,3260", "")
	w.set("etc/nodes/iqn.2005-10.org.example:storage/192.0.2.14,3260,1/default", "")
	w.set("etc/nodes/NOT A NAME/x", "")
	w.mkdir("etc/nodes/" + prefix + "5")
	w.set("etc/."+interfaceName(testInitiator)+"-"+prefix+"4", "")
	w.set("etc/.other", "")
	got, err := a.Attachments(ctx)
	want := []attach.Attachment{
		{IQN: "iqn.2005-10.org.example:storage", Server: "192.0.2.14"},
		{IQN: prefix + "1", Server: "192.0.2.11", Sessions: 1}, {IQN: prefix + "2", Server: "192.0.2.12", Sessions: 1, Lost: 1},
		{IQN: prefix + "3", Server: "2001:db8::1"}, {IQN: prefix + "4"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	// A node that has never had the modules.
	if err := os.RemoveAll(string(w)); err != nil {
		t.Fatal(err)
	}
	if list, err := a.Attachments(ctx); err != nil || len(list) > 0 {
		t.Errorf("no tree: %v, %v", list, err)
	}
}
