package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/volume"
)

// ControllerGetVolumeHealth returns what is wrong with a volume, as the storage
// host sees it.
func (s *Controller) ControllerGetVolumeHealth(ctx context.Context, q *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	list, err := s.Volumes.Health(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthMessage(q.GetVolumeId(), list)}, nil
}

// ControllerListVolumeHealth lists the volumes with which something is wrong.
func (s *Controller) ControllerListVolumeHealth(ctx context.Context, q *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	list, next, err := s.Volumes.ListHealth(ctx, int(q.GetMaxEntries()), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	r := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, h := range list {
		r.Entries = append(r.Entries, healthMessage(h.VolumeID, h.Conditions))
	}
	return r, nil
}

func healthMessage(id string, list []volume.Condition) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: id}
	for _, c := range list {
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: healthType[c.Severity], Reason: c.Reason, Message: c.Message,
		})
	}
	return h
}

var healthType = map[volume.Severity]csi.VolumeHealthErrorType{
	volume.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	volume.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
}
