//go:build guest

package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// wantLoggedOut fails the test where a target still has a session or a record.
func wantLoggedOut(t *testing.T, iqn string) {
	t.Helper()
	if slices.Contains(sessions(t), iqn) {
		t.Errorf("there is still a session with %s", iqn)
	}
	if exists(filepath.Join(nodeRecord, iqn)) {
		t.Errorf("there is still a node record of %s", iqn)
	}
}

// An unstage logs out of the target that was staged, with its record, after a
// restart and without the record; and it is not done before that has worked.
func TestC25UnstageLogsOutOfWhatWasStaged(t *testing.T) {
	v := newExt4(t, newAPI(), "c25")
	v.publish()
	iqn := v.info["iqn"]
	if strings.Contains(iqn, "c25") {
		t.Fatalf("%s is made from the volume's id", iqn)
	}
	for _, how := range []string{"restart", "without the record", "the logout fails"} {
		v.stage()
		if !slices.Contains(sessions(t), iqn) {
			t.Fatalf("%s: no session to end", how)
		}
		switch how {
		case "restart":
			again(t, host.Daemon)
		case "without the record":
			forgetRecords(t, host.Daemon)
			v.p = oldAPI()
		case "the logout fails":
			_, restore := replaceTool(t, "iscsiadm", `case "$*" in *--logout*|*" -u"*) exit 9;; esac; exec "$real" "$@"`)
			if err := v.tryUnstage(); err == nil {
				t.Error("the unstage succeeds, and nobody logged out")
			}
			if records, err := filepath.Glob(filepath.Join(host.Daemon.Dir, "state/node/stage-*")); err != nil || len(records) != 1 {
				t.Errorf("stage records after a failed teardown: %q, %v", records, err)
			}
			restore()
		}
		v.unstage()
		wantLoggedOut(t, iqn)
	}
	v.unpublish()
	v.remove()
}

// Volumes that live shortly leave no node record, and none starts by itself.
func TestC26ShortLivedVolumesLeaveNoNodeRecord(t *testing.T) {
	source := newBlock(t, newAPI(), "c26")
	snapshot := must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(source.p.CreateSnapshot(soon(t),
		&csi.CreateSnapshotRequest{Name: "c26", SourceVolumeId: source.id})).GetSnapshot().GetSnapshotId()
	for range 2 {
		r := creation("c26-restored", "iscsi", 64*mib, asBlock())
		r.VolumeContentSource = fromSnapshot(snapshot)
		v := newVol(t, newAPI(), r)
		v.publish()
		v.stage()
		record, err := os.ReadFile(theOne(t, filepath.Join(nodeRecord, v.info["iqn"], "*")))
		if err != nil || !strings.Contains(string(record), "node.startup = manual") {
			t.Errorf("the node record does not start by hand: %v", err)
		}
		v.unstage()
		wantLoggedOut(t, v.info["iqn"])
		v.unpublish()
		v.remove()
	}
	must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(newAPI().DeleteSnapshot(soon(t), &csi.DeleteSnapshotRequest{SnapshotId: snapshot}))
	source.remove()
	if records, err := filepath.Glob(nodeRecord + "/*"); err != nil || len(records) != 0 {
		t.Errorf("node records: %q, %v", records, err)
	}
	services(t, "restart", "iscsi")
	if open := sessions(t); len(open) != 0 {
		t.Errorf("iscsid logged in by itself: %q", open)
	}
}

// Every form of a portal is understood, and a stage that fails after the login
// logs out.
func TestC28EveryFormOfAPortal(t *testing.T) {
	d := ownDaemon(t, "c28", "--address", "::1")
	v := newBlock(t, inV1(daemonConn{d}), "c28")
	v.publish()
	given := v.info["portals"]
	if !strings.Contains(given, "[::1]:3260") {
		t.Fatalf("the portals are %s", given)
	}
	for k, portal := range []string{"[::1]:3260", "::1", "localhost:3260", "127.0.0.1"} {
		v.p = []plugin{inV0(daemonConn{d}), inV1(daemonConn{d})}[k%2]
		v.info["portals"] = portal
		if err := v.tryStage(); err != nil {
			t.Errorf("%s: %v", portal, err)
			continue
		}
		if !slices.Contains(sessions(t), v.info["iqn"]) {
			t.Errorf("%s: there is no session", portal)
		}
		v.unstage()
		wantLoggedOut(t, v.info["iqn"])
	}
	v.info["portals"] = "[::1]:3260"
	serial := v.info["serial"]
	v.info["serial"] = strings.Repeat("0", len(serial))
	if err := v.tryStage(); err == nil {
		t.Error("a disk of another serial is staged")
	}
	wantLoggedOut(t, v.info["iqn"])
	v.unpublish()
	v.remove()
}

// A logout of one volume is none of another: no two share a session.
func TestC29VolumesDoNotShareASession(t *testing.T) {
	var list []*vol
	for k, name := range []string{"c29-1", "c29-2", "c29-3"} {
		v := newBlock(t, []plugin{oldAPI(), newAPI()}[k%2], name)
		v.publish()
		list = append(list, v)
	}
	v1, v2, v3 := list[0], list[1], list[2]
	v1.stage()
	v1.nodePublish()
	v2.stage()
	v2.nodePublish()
	if open := sessions(t); len(open) != 2 || open[0] == open[1] {
		t.Fatalf("sessions of two volumes: %q", open)
	}
	stop, wrote := make(chan struct{}), make(chan error, 1)
	go func() {
		f, err := os.OpenFile(v2.data(), os.O_RDWR, 0)
		for n := int64(0); err == nil; n++ {
			select {
			case <-stop:
				wrote <- f.Close()
				return
			default:
				if _, err = f.WriteAt([]byte("without pause"), n%1024*4096); err == nil {
					err = f.Sync()
				}
			}
		}
		wrote <- err
	}()
	staged := make(chan error, 1)
	go func() { staged <- v3.tryStage() }()
	v1.nodeUnpublish()
	v1.unstage()
	if err := <-staged; err != nil {
		t.Error(err)
	}
	if open := sessions(t); len(open) != 2 || slices.Contains(open, v1.info["iqn"]) {
		t.Errorf("sessions after the first unstage: %q", open)
	}
	close(stop)
	if err := <-wrote; err != nil {
		t.Errorf("the other volume's writer: %v", err)
	}
	v3.unstage()
	v2.nodeUnpublish()
	v2.unstage()
	for _, v := range list {
		v.unpublish()
		v.remove()
	}
}
