package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// ControllerExpandVolume makes a volume larger, published or not. A node of an
// iSCSI volume has to look again at the disk, also where it is a block volume.
func (s *Controller) ControllerExpandVolume(ctx context.Context, q *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	if q.GetCapacityRange() == nil {
		return nil, fault.New(fault.Invalid, "capacity_range is missing")
	}
	r := volume.ExpandRequest{
		VolumeID: q.GetVolumeId(),
		Size: volume.Range{
			RequiredBytes: q.GetCapacityRange().GetRequiredBytes(),
			LimitBytes:    q.GetCapacityRange().GetLimitBytes(),
		},
	}
	if q.GetVolumeCapability() != nil {
		c, err := capability(q.GetVolumeCapability())
		if err != nil {
			return nil, err
		}
		r.Capability = &c
	}
	bytes, node, err := s.Volumes.Expand(ctx, r)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes, NodeExpansionRequired: node}, nil
}
