//go:build guest

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
	"github.com/tarn-csi/tarn/test/harness"
)

// overBudget says which budget was passed, or nothing.
func overBudget(rpc string, direct []string, most int) error {
	if len(direct) > most {
		return fmt.Errorf("%s started %d processes, of at most %d:\n\t%s", rpc, len(direct), most, strings.Join(direct, "\n\t"))
	}
	return nil
}

// Each RPC of the storage host stays within its budget of child processes, by
// what the kernel says of process starts.
func TestProcessBudgets(t *testing.T) {
	watch, err := harness.WatchChildren(host.Daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	measure := func(rpc string, most int, call func()) {
		t.Helper()
		direct, others, log := during(t, watch, call)
		most += byTheClock(log)
		t.Logf("%s: %d of %d processes: %s (started by them: %d)", rpc, len(direct), most, strings.Join(direct, "; "), len(others))
		if err := overBudget(rpc, direct, most); err != nil {
			t.Error(err)
		}
	}
	budgets := map[string]struct{ create, publish, unpublish, remove int }{
		"nfs":         {2, 3, 3, 2},
		"iscsi block": {2, 2, 2, 2},
	}
	for _, k := range kinds {
		b, ok := budgets[k.name]
		if !ok {
			continue
		}
		word := k.word()
		var l *live
		measure(k.name+" CreateVolume", b.create, func() { l = create(t, k, "budget-"+word) })
		measure(k.name+" ControllerPublishVolume", b.publish, l.publish)
		measure(k.name+" ListVolumes", 1, func() {
			must[*csiv0.ListVolumesResponse](t, "ListVolumes")(controller().ListVolumes(deadline(t), &csiv0.ListVolumesRequest{}))
		})
		measure(k.name+" ControllerUnpublishVolume", b.unpublish, l.unpublish)
		var snapshot string
		measure(k.name+" CreateSnapshot", 2, func() {
			snapshot = must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(controllerV1().CreateSnapshot(deadline(t),
				&csi.CreateSnapshotRequest{Name: "budget-" + word, SourceVolumeId: l.id})).GetSnapshot().GetSnapshotId()
		})
		deleteSnapshot := func() {
			must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(controllerV1().DeleteSnapshot(deadline(t), &csi.DeleteSnapshotRequest{SnapshotId: snapshot}))
		}
		var restored, cloned *live
		measure(k.name+" CreateVolume from a snapshot", 3, func() {
			restored = createV1(t, k, "budget-r-"+word, 2*k.sizeBytes, fromSnapshot(snapshot), nil)
		})
		measure(k.name+" CreateVolume from a volume", 4, func() {
			cloned = createV1(t, k, "budget-c-"+word, k.sizeBytes, fromVolume(l.id), nil)
		})
		measure(k.name+" ListSnapshots", 1, func() {
			must[*csi.ListSnapshotsResponse](t, "ListSnapshots")(controllerV1().ListSnapshots(deadline(t), &csi.ListSnapshotsRequest{}))
		})
		measure(k.name+" ControllerExpandVolume", 2, func() {
			must[*csi.ControllerExpandVolumeResponse](t, "ControllerExpandVolume")(controllerV1().ControllerExpandVolume(deadline(t),
				&csi.ControllerExpandVolumeRequest{VolumeId: l.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 3 * k.sizeBytes}}))
		})
		measure(k.name+" DeleteSnapshot with a clone", 3, deleteSnapshot)
		measure(k.name+" DeleteVolume of a clone", 3, restored.remove)
		measure(k.name+" DeleteVolume of the last clone but one", 3, cloned.remove)
		measure(k.name+" DeleteVolume", b.remove, l.remove)

		l = create(t, k, "budget-"+word)
		measure(k.name+" CreateSnapshot again", 2, func() {
			snapshot = must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(controllerV1().CreateSnapshot(deadline(t),
				&csi.CreateSnapshotRequest{Name: "budget-" + word, SourceVolumeId: l.id})).GetSnapshot().GetSnapshotId()
		})
		measure(k.name+" DeleteVolume with a snapshot", 3, l.remove)
		measure(k.name+" DeleteSnapshot, the last of a deleted volume", 3, deleteSnapshot)
	}
}

// The measure sees one process too many.
func TestBudgetSeesAnExtraChild(t *testing.T) {
	watch, err := harness.WatchChildren(host.Daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	capacity := func() {
		must[*csiv0.GetCapacityResponse](t, "GetCapacity")(controller().GetCapacity(deadline(t), &csiv0.GetCapacityRequest{}))
	}
	capacity()
	direct, _, err := watch.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(direct) != 1 {
		t.Fatalf("GetCapacity started %q, want one process", direct)
	}
	capacity()
	capacity()
	direct, _, err = watch.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if overBudget("GetCapacity", direct, 1) == nil {
		t.Fatalf("two processes pass for one: %q", direct)
	}
}
