package csi

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// The servers here have no domain, so a request that gets past the check panics.
func call(method any, req proto.Message) (err error) {
	out := reflect.ValueOf(method).Call([]reflect.Value{reflect.ValueOf(context.Background()), reflect.ValueOf(req)})
	err, _ = out[1].Interface().(error)
	return err
}

func TestARequestWithoutARequiredFieldIsRefusedBeforeAnythingIsLookedUp(t *testing.T) {
	c, g, n := &Controller{}, &GroupController{}, &Node{}
	capability := &csi.VolumeCapability{AccessType: asBlock, AccessMode: writer}
	list := []*csi.VolumeCapability{capability}
	for _, r := range []struct {
		method   any
		req      proto.Message
		required string
	}{
		{c.CreateVolume, &csi.CreateVolumeRequest{Name: "n", VolumeCapabilities: list}, "name volume_capabilities"},
		{c.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: "v"}, "volume_id"},
		{c.ControllerPublishVolume, &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n", VolumeCapability: capability}, "volume_id node_id volume_capability"},
		{c.ControllerUnpublishVolume, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"}, "volume_id"},
		{c.UnpublishStrict, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"}, "volume_id"},
		{c.ControllerExpandVolume, &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1}}, "volume_id capacity_range"},
		{c.ControllerGetVolume, &csi.ControllerGetVolumeRequest{VolumeId: "v"}, "volume_id"},
		{c.ControllerGetVolumeHealth, &csi.ControllerGetVolumeHealthRequest{VolumeId: "v"}, "volume_id"},
		{c.ControllerModifyVolume, &csi.ControllerModifyVolumeRequest{VolumeId: "v", MutableParameters: map[string]string{"a": "b"}}, "volume_id"},
		{c.ValidateVolumeCapabilities, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "v", VolumeCapabilities: list}, "volume_id volume_capabilities"},
		{c.CreateSnapshot, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v"}, "name source_volume_id"},
		{c.DeleteSnapshot, &csi.DeleteSnapshotRequest{SnapshotId: "s"}, "snapshot_id"},
		{c.GetSnapshot, &csi.GetSnapshotRequest{SnapshotId: "s"}, "snapshot_id"},
		{g.CreateVolumeGroupSnapshot, &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v"}}, "name source_volume_ids"},
		{g.DeleteVolumeGroupSnapshot, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g"}, "group_snapshot_id"},
		{g.GetVolumeGroupSnapshot, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g"}, "group_snapshot_id"},
		{n.NodeStageVolume, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", VolumeCapability: capability}, "volume_id staging_target_path volume_capability"},
		{n.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s"}, "volume_id staging_target_path"},
		{n.NodePublishVolume, &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/t", VolumeCapability: capability}, "volume_id target_path volume_capability"},
		{n.NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "/t"}, "volume_id target_path"},
		{n.NodeGetVolumeStats, &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/t"}, "volume_id volume_path"},
		{n.NodeExpandVolume, &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: "/t"}, "volume_id volume_path"},
		{n.NodeGetVolumeHealth, &csi.NodeGetVolumeHealthRequest{VolumeId: "v"}, "volume_id"},
	} {
		for _, field := range strings.Fields(r.required) {
			req := proto.Clone(r.req)
			m := req.ProtoReflect()
			m.Clear(m.Descriptor().Fields().ByName(protoreflect.Name(field)))
			err := call(r.method, req)
			if fault.Kind(err) != fault.Invalid || err.Error() == "" {
				t.Errorf("%T without %s: %v", req, field, err)
			}
		}
	}
}
