//go:build !guest && !faults

package faults

import (
	"encoding/json"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/inprocess"
)

// A delete that cannot succeed is told in full once, and then with a count; what
// else happens is in the log as ever.
func TestC59ARepeatedFailureDoesNotFillTheLog(t *testing.T) {
	const tries = 300
	w, ctx := start(t), t.Context()
	w.Logger().SetLevel(logrus.InfoLevel)
	must[*csi.CreateVolumeResponse](t, "A")(w.v1.CreateVolume(ctx, creation("a", "nfs", 64*mib, asFilesystem(""))))
	must[*csi.ControllerPublishVolumeResponse](t, "publish")(w.v1.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: "tank/a", NodeId: inprocess.OtherNodeID, VolumeCapability: asFilesystem("")}))
	for n := range tries {
		_, err := w.v1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "tank/a"})
		wantCode(t, "DeleteVolume of a published volume", err, "worker-2", codes.FailedPrecondition)
		if n%100 == 50 {
			must[*csi.CreateVolumeResponse](t, "B")(w.v1.CreateVolume(ctx, creation("b", "nfs", 64*mib, asFilesystem(""))))
			must[*csi.DeleteVolumeResponse](t, "B")(w.v1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "tank/b"}))
		}
	}
	told := w.log.lines("DeleteVolume", "tank/a")
	if len(told) == 0 || len(told) >= 50 {
		t.Fatalf("%d lines for %d tries", len(told), tries)
	}
	var first, last struct {
		Reason string
		Times  int
	}
	for line, into := range map[string]any{told[0]: &first, told[len(told)-1]: &last} {
		if err := json.Unmarshal([]byte(line), into); err != nil {
			t.Fatal(err)
		}
	}
	if first.Reason == "" || first.Times != 0 || last.Times < tries/2 || last.Reason != first.Reason {
		t.Errorf("first %+v, last %+v", first, last)
	}
	if other := w.log.lines(`"done"`, "DeleteVolume", "tank/b"); len(other) != 3 {
		t.Errorf("the other volume's deletions: %q", other)
	}
	must[*csi.ControllerUnpublishVolumeResponse](t, "unpublish")(w.v1.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: "tank/a", NodeId: inprocess.OtherNodeID}))
	must[*csi.DeleteVolumeResponse](t, "A")(w.v1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "tank/a"}))
	if done := w.log.lines(`"done"`, "DeleteVolume", "tank/a", `"failures":300`); len(done) != 1 {
		t.Errorf("the success is told %d times", len(done))
	}
}
