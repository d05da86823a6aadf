package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/node"
)

// NodeGetVolumeHealth says what is wrong with a volume, as this node sees it.
func (s *Node) NodeGetVolumeHealth(ctx context.Context, q *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	id, err := s.volumeID(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	list, err := s.Node.VolumeHealth(ctx, node.HealthRequest{
		VolumeID: id, PublishPath: q.GetVolumePublishPath(), StagingPath: q.GetStagingTargetPath(),
	})
	if err != nil {
		return nil, err
	}
	health := &csi.VolumeHealth{VolumeId: q.GetVolumeId()}
	for _, c := range list {
		status := csi.VolumeHealthErrorType_INACCESSIBLE
		if c.Status == node.Degraded {
			status = csi.VolumeHealthErrorType_DEGRADED
		}
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: status, Reason: c.Reason, Message: c.Message})
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// NodeGetStorageHealth says what is wrong between this node and its storage.
func (s *Node) NodeGetStorageHealth(ctx context.Context, _ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	list, err := s.Node.StorageHealth(ctx)
	if err != nil {
		return nil, err
	}
	r := &csi.NodeGetStorageHealthResponse{}
	for _, c := range list {
		status := csi.StorageHealthErrorType_STORAGE_UNREACHABLE
		if c.Status == node.Degraded {
			status = csi.StorageHealthErrorType_STORAGE_DEGRADED
		}
		r.BackendHealth = append(r.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: status, Reason: c.Reason, Message: c.Message})
	}
	return r, nil
}
