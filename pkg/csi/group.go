package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// GroupController serves the csi.v1 GroupController service.
type GroupController struct {
	csi.UnimplementedGroupControllerServer
	Volumes *volume.Service
}

// GroupControllerGetCapabilities says which RPCs are served.
func (s *GroupController) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT}},
	}}}, nil
}

// CreateVolumeGroupSnapshot takes a group of snapshots, or finds the one of an
// earlier call.
func (s *GroupController) CreateVolumeGroupSnapshot(ctx context.Context, q *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := required("name", q.GetName()); err != nil {
		return nil, err
	}
	if len(q.GetSourceVolumeIds()) == 0 {
		return nil, fault.New(fault.Invalid, "source_volume_ids are missing")
	}
	g, err := s.Volumes.CreateGroup(ctx, q.GetName(), q.GetSourceVolumeIds(), q.GetParameters())
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(g)}, nil
}

func groupMessage(g volume.Group) *csi.VolumeGroupSnapshot {
	m := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: timestamppb.New(g.Created), ReadyToUse: true}
	for _, n := range g.Snapshots {
		m.Snapshots = append(m.Snapshots, snapshotMessage(n))
	}
	return m
}

// DeleteVolumeGroupSnapshot deletes a group with all its members; one that is
// unknown is deleted.
func (s *GroupController) DeleteVolumeGroupSnapshot(ctx context.Context, q *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if err := required("group_snapshot_id", q.GetGroupSnapshotId()); err != nil {
		return nil, err
	}
	if err := s.Volumes.DeleteGroup(ctx, q.GetGroupSnapshotId(), q.GetSnapshotIds()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot returns one group.
func (s *GroupController) GetVolumeGroupSnapshot(ctx context.Context, q *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if err := required("group_snapshot_id", q.GetGroupSnapshotId()); err != nil {
		return nil, err
	}
	g, err := s.Volumes.GetGroup(ctx, q.GetGroupSnapshotId(), q.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(g)}, nil
}
