package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Controller serves the csi.v1 Controller service.
type Controller struct {
	csi.UnimplementedControllerServer
	Volumes *volume.Service
}

// ControllerGetCapabilities says which RPCs are served.
func (s *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	} {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// CreateVolume makes a volume, or finds the one of an earlier call.
func (s *Controller) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := required("name", q.GetName()); err != nil {
		return nil, err
	}
	caps, err := capabilities(q.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	from, err := contentSource(q.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	v, err := s.Volumes.Create(ctx, volume.CreateRequest{
		Name: q.GetName(),
		Size: volume.Range{
			RequiredBytes: q.GetCapacityRange().GetRequiredBytes(),
			LimitBytes:    q.GetCapacityRange().GetLimitBytes(),
		},
		Capabilities: caps,
		Parameters:   q.GetParameters(),
		Mutable:      q.GetMutableParameters(),
		Source:       from,
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: message(v)}, nil
}

func message(v volume.Volume) *csi.Volume {
	return &csi.Volume{VolumeId: v.ID, CapacityBytes: v.CapacityBytes, VolumeContext: v.Context, ContentSource: sourceMessage(v.Source)}
}

// DeleteVolume deletes a volume; one that is unknown is deleted.
func (s *Controller) DeleteVolume(ctx context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := s.Volumes.Delete(ctx, q.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerPublishVolume opens a volume to a node.
func (s *Controller) ControllerPublishVolume(ctx context.Context, q *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId(), "node_id", q.GetNodeId()); err != nil {
		return nil, err
	}
	c, err := capability(q.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	info, err := s.Volumes.Publish(ctx, volume.PublishRequest{
		VolumeID:   q.GetVolumeId(),
		NodeID:     q.GetNodeId(),
		Capability: c,
		ReadOnly:   q.GetReadonly(),
		Secrets:    q.GetSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: info}, nil
}

// ControllerUnpublishVolume closes a volume to a node, or to all. A volume or
// node that is unknown has nothing published.
func (s *Controller) ControllerUnpublishVolume(ctx context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	r, err := s.UnpublishStrict(ctx, q)
	if fault.Kind(err) == fault.NotFound {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	return r, err
}

// UnpublishStrict is ControllerUnpublishVolume that reports an unknown volume
// or node as fault.NotFound, which is what csi.v0 wants.
func (s *Controller) UnpublishStrict(ctx context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := s.Volumes.Unpublish(ctx, q.GetVolumeId(), q.GetNodeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ValidateVolumeCapabilities confirms capabilities if the volume has them all.
func (s *Controller) ValidateVolumeCapabilities(ctx context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	caps, err := capabilities(q.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	reason, err := s.Volumes.Validate(ctx, q.GetVolumeId(), caps, q.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	if reason != "" {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: reason}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      q.GetVolumeContext(),
		VolumeCapabilities: q.GetVolumeCapabilities(),
		Parameters:         q.GetParameters(),
		MutableParameters:  q.GetMutableParameters(),
	}}, nil
}

// ListVolumes lists the volumes of all pools.
func (s *Controller) ListVolumes(ctx context.Context, q *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	list, next, err := s.Volumes.List(ctx, int(q.GetMaxEntries()), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	r := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range list {
		r.Entries = append(r.Entries, &csi.ListVolumesResponse_Entry{
			Volume: message(v),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.Nodes},
		})
	}
	return r, nil
}

// ControllerGetVolume returns what is known of a volume and where it is
// published.
func (s *Controller) ControllerGetVolume(ctx context.Context, q *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := s.Volumes.Get(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: message(v),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: v.Nodes},
	}, nil
}

// ControllerModifyVolume changes parameters that may change.
func (s *Controller) ControllerModifyVolume(ctx context.Context, q *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := required("volume_id", q.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := s.Volumes.Modify(ctx, q.GetVolumeId(), q.GetMutableParameters()); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// GetCapacity returns what is available to volumes of these parameters.
func (s *Controller) GetCapacity(ctx context.Context, q *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	var caps []access.Capability
	if list := q.GetVolumeCapabilities(); len(list) > 0 {
		var err error
		if caps, err = capabilities(list); err != nil {
			return nil, err
		}
	}
	available, least, most, err := s.Volumes.Capacity(ctx, q.GetParameters(), caps)
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: available,
		MinimumVolumeSize: wrapperspb.Int64(least),
		MaximumVolumeSize: wrapperspb.Int64(most),
	}, nil
}
