package v0

import (
	"context"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

type node struct {
	v1 csi.NodeServer
}

// NewNode returns the v0 Node service of a v1 server.
func NewNode(v1 csi.NodeServer) csiv0.NodeServer {
	return &node{v1: v1}
}

func (s *node) NodeStageVolume(ctx context.Context, q *csiv0.NodeStageVolumeRequest) (*csiv0.NodeStageVolumeResponse, error) {
	_, err := s.v1.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId:          q.GetVolumeId(),
		PublishContext:    q.GetPublishInfo(),
		StagingTargetPath: q.GetStagingTargetPath(),
		VolumeCapability:  volumeCapability(q.GetVolumeCapability()),
		Secrets:           q.GetNodeStageSecrets(),
		VolumeContext:     q.GetVolumeAttributes(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.NodeStageVolumeResponse{}, nil
}

func (s *node) NodeUnstageVolume(ctx context.Context, q *csiv0.NodeUnstageVolumeRequest) (*csiv0.NodeUnstageVolumeResponse, error) {
	_, err := s.v1.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
		VolumeId:          q.GetVolumeId(),
		StagingTargetPath: q.GetStagingTargetPath(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.NodeUnstageVolumeResponse{}, nil
}

func (s *node) NodePublishVolume(ctx context.Context, q *csiv0.NodePublishVolumeRequest) (*csiv0.NodePublishVolumeResponse, error) {
	_, err := s.v1.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId:          q.GetVolumeId(),
		PublishContext:    q.GetPublishInfo(),
		StagingTargetPath: q.GetStagingTargetPath(),
		TargetPath:        q.GetTargetPath(),
		VolumeCapability:  volumeCapability(q.GetVolumeCapability()),
		Readonly:          q.GetReadonly(),
		Secrets:           q.GetNodePublishSecrets(),
		VolumeContext:     q.GetVolumeAttributes(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.NodePublishVolumeResponse{}, nil
}

func (s *node) NodeUnpublishVolume(ctx context.Context, q *csiv0.NodeUnpublishVolumeRequest) (*csiv0.NodeUnpublishVolumeResponse, error) {
	_, err := s.v1.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{
		VolumeId:   q.GetVolumeId(),
		TargetPath: q.GetTargetPath(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetId answers from NodeGetInfo.
func (s *node) NodeGetId(ctx context.Context, _ *csiv0.NodeGetIdRequest) (*csiv0.NodeGetIdResponse, error) {
	answer, err := s.v1.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return nil, err
	}
	return &csiv0.NodeGetIdResponse{NodeId: answer.GetNodeId()}, nil
}

func (s *node) NodeGetCapabilities(ctx context.Context, _ *csiv0.NodeGetCapabilitiesRequest) (*csiv0.NodeGetCapabilitiesResponse, error) {
	answer, err := s.v1.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	return &csiv0.NodeGetCapabilitiesResponse{Capabilities: nodeCapabilities(answer.GetCapabilities())}, nil
}
