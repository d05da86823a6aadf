package v0

import (
	"context"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Controller is the v1 controller plus the one call whose answer differs
// between the versions.
type Controller interface {
	csi.ControllerServer
	// UnpublishStrict is ControllerUnpublishVolume that reports an unknown
	// volume or node as fault.NotFound, as v0 wants; v1 takes them as
	// unpublished.
	UnpublishStrict(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error)
}

type controller struct {
	v1 Controller
}

// NewController returns the v0 Controller service of a v1 controller.
func NewController(v1 Controller) csiv0.ControllerServer {
	return &controller{v1: v1}
}

func (s *controller) CreateVolume(ctx context.Context, q *csiv0.CreateVolumeRequest) (*csiv0.CreateVolumeResponse, error) {
	answer, err := s.v1.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:               q.GetName(),
		CapacityRange:      capacityRange(q.GetCapacityRange()),
		VolumeCapabilities: volumeCapabilities(q.GetVolumeCapabilities()),
		Parameters:         q.GetParameters(),
		Secrets:            q.GetControllerCreateSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.CreateVolumeResponse{Volume: volume(answer.GetVolume())}, nil
}

func (s *controller) DeleteVolume(ctx context.Context, q *csiv0.DeleteVolumeRequest) (*csiv0.DeleteVolumeResponse, error) {
	_, err := s.v1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{
		VolumeId: q.GetVolumeId(),
		Secrets:  q.GetControllerDeleteSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.DeleteVolumeResponse{}, nil
}

func (s *controller) ControllerPublishVolume(ctx context.Context, q *csiv0.ControllerPublishVolumeRequest) (*csiv0.ControllerPublishVolumeResponse, error) {
	answer, err := s.v1.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId:         q.GetVolumeId(),
		NodeId:           q.GetNodeId(),
		VolumeCapability: volumeCapability(q.GetVolumeCapability()),
		Readonly:         q.GetReadonly(),
		Secrets:          q.GetControllerPublishSecrets(),
		VolumeContext:    q.GetVolumeAttributes(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.ControllerPublishVolumeResponse{PublishInfo: answer.GetPublishContext()}, nil
}

// ControllerUnpublishVolume calls UnpublishStrict.
func (s *controller) ControllerUnpublishVolume(ctx context.Context, q *csiv0.ControllerUnpublishVolumeRequest) (*csiv0.ControllerUnpublishVolumeResponse, error) {
	_, err := s.v1.UnpublishStrict(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: q.GetVolumeId(),
		NodeId:   q.GetNodeId(),
		Secrets:  q.GetControllerUnpublishSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.ControllerUnpublishVolumeResponse{}, nil
}

// ValidateVolumeCapabilities answers supported where v1 confirms, and always
// gives a message where it does not.
func (s *controller) ValidateVolumeCapabilities(ctx context.Context, q *csiv0.ValidateVolumeCapabilitiesRequest) (*csiv0.ValidateVolumeCapabilitiesResponse, error) {
	answer, err := s.v1.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId:           q.GetVolumeId(),
		VolumeContext:      q.GetVolumeAttributes(),
		VolumeCapabilities: volumeCapabilities(q.GetVolumeCapabilities()),
	})
	if err != nil {
		return nil, err
	}
	if answer.GetConfirmed() != nil {
		return &csiv0.ValidateVolumeCapabilitiesResponse{Supported: true}, nil
	}
	message := answer.GetMessage()
	if message == "" {
		message = "the volume does not support all of these capabilities"
	}
	return &csiv0.ValidateVolumeCapabilitiesResponse{Message: message}, nil
}

func (s *controller) ListVolumes(ctx context.Context, q *csiv0.ListVolumesRequest) (*csiv0.ListVolumesResponse, error) {
	answer, err := s.v1.ListVolumes(ctx, &csi.ListVolumesRequest{
		MaxEntries:    q.GetMaxEntries(),
		StartingToken: q.GetStartingToken(),
	})
	if err != nil {
		return nil, err
	}
	entries := make([]*csiv0.ListVolumesResponse_Entry, 0, len(answer.GetEntries()))
	for _, entry := range answer.GetEntries() {
		entries = append(entries, &csiv0.ListVolumesResponse_Entry{Volume: volume(entry.GetVolume())})
	}
	return &csiv0.ListVolumesResponse{Entries: entries, NextToken: answer.GetNextToken()}, nil
}

func (s *controller) GetCapacity(ctx context.Context, q *csiv0.GetCapacityRequest) (*csiv0.GetCapacityResponse, error) {
	answer, err := s.v1.GetCapacity(ctx, &csi.GetCapacityRequest{
		VolumeCapabilities: volumeCapabilities(q.GetVolumeCapabilities()),
		Parameters:         q.GetParameters(),
	})
	if err != nil {
		return nil, err
	}
	return &csiv0.GetCapacityResponse{AvailableCapacity: answer.GetAvailableCapacity()}, nil
}

func (s *controller) ControllerGetCapabilities(ctx context.Context, _ *csiv0.ControllerGetCapabilitiesRequest) (*csiv0.ControllerGetCapabilitiesResponse, error) {
	answer, err := s.v1.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	return &csiv0.ControllerGetCapabilitiesResponse{Capabilities: controllerCapabilities(answer.GetCapabilities())}, nil
}
