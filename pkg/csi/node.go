package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/ephemeral"
	"github.com/tarn-csi/tarn/pkg/node"
)

// Node serves the csi.v1 Node service.
type Node struct {
	csi.UnimplementedNodeServer
	Node *node.Service
	// Ephemeral serves volumes that stand in a pod's specification; nil serves none.
	Ephemeral *ephemeral.Service
	// MaxVolumes is how many volumes may be published here; zero is no limit.
	MaxVolumes int64
	// Topology is where this node is: segments by key.
	Topology map[string]string
}

// NodeGetInfo names this node, and says where it is and what it bears.
func (s *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	r := &csi.NodeGetInfoResponse{NodeId: s.Node.ID(), MaxVolumesPerNode: s.MaxVolumes}
	if len(s.Topology) > 0 {
		r.AccessibleTopology = &csi.Topology{Segments: s.Topology}
	}
	return r, nil
}

// NodeGetCapabilities says which RPCs are served.
func (s *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	} {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// NodeStageVolume attaches a volume and mounts it at the staging path.
func (s *Node) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "staging_target_path", q.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	c, err := capability(q.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	err = s.Node.Stage(ctx, node.StageRequest{
		VolumeID:       q.GetVolumeId(),
		StagingPath:    q.GetStagingTargetPath(),
		Capability:     c,
		PublishContext: q.GetPublishContext(),
		VolumeContext:  q.GetVolumeContext(),
		Secrets:        q.GetSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume undoes NodeStageVolume.
func (s *Node) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "staging_target_path", q.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := s.Node.Unstage(ctx, q.GetVolumeId(), q.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume shows a staged volume at the target path.
func (s *Node) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "target_path", q.GetTargetPath()); err != nil {
		return nil, err
	}
	c, err := capability(q.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	if s.Ephemeral != nil && ephemeral.Asked(q.GetStagingTargetPath(), q.GetVolumeContext()) {
		// Secrets of such a volume are chosen by the pod's author: they are not read.
		err := s.Ephemeral.Publish(ctx, ephemeral.Request{
			Handle: q.GetVolumeId(), TargetPath: q.GetTargetPath(), Capability: c, ReadOnly: q.GetReadonly(), VolumeContext: q.GetVolumeContext(),
		})
		if err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, nil
	}
	err = s.Node.Publish(ctx, node.PublishRequest{
		VolumeID:       q.GetVolumeId(),
		StagingPath:    q.GetStagingTargetPath(),
		TargetPath:     q.GetTargetPath(),
		Capability:     c,
		ReadOnly:       q.GetReadonly(),
		PublishContext: q.GetPublishContext(),
		VolumeContext:  q.GetVolumeContext(),
		Secrets:        q.GetSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (s *Node) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "target_path", q.GetTargetPath()); err != nil {
		return nil, err
	}
	if s.Ephemeral != nil {
		if ours, err := s.Ephemeral.Unpublish(ctx, q.GetVolumeId(), q.GetTargetPath()); err != nil {
			return nil, err
		} else if ours {
			return &csi.NodeUnpublishVolumeResponse{}, nil
		}
	}
	if err := s.Node.Unpublish(ctx, q.GetVolumeId(), q.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// volumeID is the volume that is meant by an id that an orchestrator has, which of
// an ephemeral volume is its own.
func (s *Node) volumeID(id string) (string, error) {
	if s.Ephemeral == nil {
		return id, nil
	}
	return s.Ephemeral.VolumeID(id)
}
