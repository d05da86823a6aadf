package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/node"
)

// NodeGetVolumeStats says how full a volume is: a filesystem in bytes and, where
// it counts them, in inodes; of a block volume only the size is known.
func (s *Node) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "volume_path", q.GetVolumePath()); err != nil {
		return nil, err
	}
	id, err := s.volumeID(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	stats, err := s.Node.Stats(ctx, id, q.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if stats.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: stats.SizeBytes}}}, nil
	}
	r := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{usage(csi.VolumeUsage_BYTES, stats.Usage.Bytes)}}
	if stats.Usage.Inodes.Total > 0 {
		r.Usage = append(r.Usage, usage(csi.VolumeUsage_INODES, stats.Usage.Inodes))
	}
	return r, nil
}

func usage(unit csi.VolumeUsage_Unit, a node.Amount) *csi.VolumeUsage {
	return &csi.VolumeUsage{Unit: unit, Total: a.Total, Used: a.Used, Available: a.Available}
}

// NodeExpandVolume makes the node use the whole of a volume that has grown.
func (s *Node) NodeExpandVolume(ctx context.Context, q *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "volume_path", q.GetVolumePath()); err != nil {
		return nil, err
	}
	r := node.ExpandRequest{
		VolumeID:      q.GetVolumeId(),
		Path:          q.GetVolumePath(),
		StagingPath:   q.GetStagingTargetPath(),
		RequiredBytes: q.GetCapacityRange().GetRequiredBytes(),
		LimitBytes:    q.GetCapacityRange().GetLimitBytes(),
	}
	if q.GetVolumeCapability() != nil {
		c, err := capability(q.GetVolumeCapability())
		if err != nil {
			return nil, err
		}
		r.Type = c.Type
	}
	size, err := s.Node.Expand(ctx, r)
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}
