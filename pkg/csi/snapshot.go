package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// CreateSnapshot takes a snapshot, or finds the one of an earlier call.
func (s *Controller) CreateSnapshot(ctx context.Context, q *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := required("name", q.GetName(), "source_volume_id", q.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	if q.GetAccessibilityRequirements() != nil {
		return nil, fault.New(fault.Invalid, "accessibility_requirements of a snapshot are not supported: leave them out")
	}
	n, err := s.Volumes.CreateSnapshot(ctx, q.GetName(), q.GetSourceVolumeId(), q.GetParameters())
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(n)}, nil
}

// snapshotMessage is the answer's form. A snapshot is ready once it exists.
func snapshotMessage(n volume.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:      n.ID,
		SourceVolumeId:  n.VolumeID,
		SizeBytes:       n.SizeBytes,
		CreationTime:    timestamppb.New(n.Created),
		ReadyToUse:      true,
		GroupSnapshotId: n.GroupID,
	}
}

// DeleteSnapshot deletes a snapshot; one that is unknown is deleted.
func (s *Controller) DeleteSnapshot(ctx context.Context, q *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := required("snapshot_id", q.GetSnapshotId()); err != nil {
		return nil, err
	}
	if err := s.Volumes.DeleteSnapshot(ctx, q.GetSnapshotId()); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots lists the snapshots of all pools.
func (s *Controller) ListSnapshots(ctx context.Context, q *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	filter := volume.SnapshotFilter{SnapshotID: q.GetSnapshotId(), VolumeID: q.GetSourceVolumeId()}
	list, next, err := s.Volumes.ListSnapshots(ctx, filter, int(q.GetMaxEntries()), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	r := &csi.ListSnapshotsResponse{NextToken: next}
	for _, n := range list {
		r.Entries = append(r.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotMessage(n)})
	}
	return r, nil
}

// GetSnapshot returns one snapshot.
func (s *Controller) GetSnapshot(ctx context.Context, q *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := required("snapshot_id", q.GetSnapshotId()); err != nil {
		return nil, err
	}
	n, err := s.Volumes.GetSnapshot(ctx, q.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshotMessage(n)}, nil
}
