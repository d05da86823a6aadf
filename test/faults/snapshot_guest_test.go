//go:build guest

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// snapshotsOf are the names of a dataset's snapshots.
func snapshotsOf(t *testing.T, dataset string) (names []string) {
	t.Helper()
	for name := range strings.FieldsSeq(machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-d", "1", dataset)) {
		_, name, _ = strings.Cut(name, "@")
		names = append(names, name)
	}
	return names
}

// A volume is cloned any number of times: each clone has a helper snapshot of its
// own, which nobody sees and which goes with it.
func TestC41HelperSnapshotsAreTheClones(t *testing.T) {
	a := newNFS(t, newAPI(), "c41-a")
	request := func(name string) *csi.CreateVolumeRequest {
		r := creation(name, "nfs", 64*mib, asFilesystem(""))
		r.VolumeContentSource = fromVolume(a.id)
		return r
	}
	b1, b2 := newVol(t, newAPI(), request("c41-b1")), newVol(t, newAPI(), request("c41-b2"))
	if helpers := snapshotsOf(t, a.dataset()); len(helpers) != 2 || helpers[0] == helpers[1] {
		t.Errorf("helper snapshots of two clones: %q", helpers)
	}
	b1.remove()
	b3 := newVol(t, newAPI(), request("c41-b3"))
	if replay := newVol(t, newAPI(), request("c41-b2")); replay.id != b2.id {
		t.Errorf("a replay makes %s", replay.id)
	}
	if list := must[*csi.ListSnapshotsResponse](t, "ListSnapshots")(a.p.ListSnapshots(soon(t), &csi.ListSnapshotsRequest{})).GetEntries(); len(list) != 0 {
		t.Errorf("helper snapshots are listed: %v", list)
	}

	// Killed after the helper snapshot.
	dir, restore := replaceTool(t, "zfs", `if [ "$1" = clone ]; then echo $$ >"$dir/new"; mv "$dir/new" "$dir/pid"; kill -STOP $$; fi; exec "$real" "$@"`)
	ended := make(chan error, 1)
	go func() {
		_, err := a.p.CreateVolume(soon(t), request("c41-b4"))
		ended <- err
	}()
	stopped := stoppedTool(t, dir)
	before := snapshotsOf(t, a.dataset())
	host.Daemon.Kill()
	endTool(t, stopped)
	if err := <-ended; err == nil {
		t.Fatal("the call got its answer")
	}
	restore()
	if len(before) != 3 {
		t.Fatalf("the helper snapshot is not there yet: %q", before)
	}
	again(t, host.Daemon)
	b4 := newVol(t, newAPI(), request("c41-b4"))
	eventually(t, "one helper snapshot a clone", time.Minute, func() bool { return len(snapshotsOf(t, a.dataset())) == 3 })
	for _, v := range []*vol{b2, b3, b4} {
		v.remove()
	}
	if left := snapshotsOf(t, a.dataset()); len(left) != 0 {
		t.Errorf("helper snapshots of deleted clones: %q", left)
	}
	a.remove()
}

// A volume with snapshots is deleted at once; they can be restored until the last
// dependent takes all of it with it.
func TestC43SnapshotsOutliveTheirVolume(t *testing.T) {
	a := newNFS(t, newAPI(), "c43-a")
	a.up()
	write(t, a.data(), "of A")
	s1 := must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(a.p.CreateSnapshot(soon(t),
		&csi.CreateSnapshotRequest{Name: "c43-s1", SourceVolumeId: a.id})).GetSnapshot().GetSnapshotId()
	wantCode(t, "delete while published", a.tryRemove(), "published", codes.FailedPrecondition)
	a.down()
	if machine.Run("zfs", "list", a.dataset()) == nil {
		t.Error("the deleted volume's name is not free")
	}
	restore := func(name string) *vol {
		t.Helper()
		r := creation(name, "nfs", 64*mib, asFilesystem(""))
		r.VolumeContentSource = fromSnapshot(s1)
		v := newVol(t, newAPI(), r)
		v.up()
		wantText(t, v.data(), "of A")
		return v
	}
	restore("c43-r").down()
	if list := must[*csi.ListSnapshotsResponse](t, "ListSnapshots")(a.p.ListSnapshots(soon(t), &csi.ListSnapshotsRequest{SnapshotId: s1})).GetEntries(); len(list) != 1 {
		t.Errorf("the snapshot is listed as %v", list)
	}
	last := restore("c43-last")
	must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(a.p.DeleteSnapshot(soon(t), &csi.DeleteSnapshotRequest{SnapshotId: s1}))
	wantText(t, last.data(), "of A")
	last.down()
	a.remove() // again
	below := machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-t", "all", "-r", host.Pool.Parent())
	if strings.Contains(below, "c43") {
		t.Errorf("left after the last dependent: %s", below)
	}
}
