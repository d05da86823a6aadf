package sanityv0

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func (r *reference) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "org.example.reference", VendorVersion: "1"}, nil
}

func (r *reference) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{pluginCapability(csi.PluginCapability_Service_CONTROLLER_SERVICE)}}, nil
}

func pluginCapability(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
	return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
}

func (r *reference) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (r *reference) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid("name and volume_capabilities are required")
	}
	if err := allWellFormed(req.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if err := r.supports(req.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	parameters, err := ownParameters(req.GetParameters())
	if err != nil {
		return nil, err
	}
	if len(req.GetName()) > maxString || strings.ContainsRune(req.GetName(), 0) {
		return nil, invalid("the name cannot be used")
	}
	required, limit := req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes()
	if required < 0 || limit < 0 || limit > 0 && limit < required {
		return nil, invalid("the range from %d to %d is none", required, limit)
	}
	if required > refMax {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes are too many", required)
	}
	size := (required + refBlock - 1) / refBlock * refBlock
	if required == 0 {
		if size = 2 << 20; limit > 0 {
			size = min(size, limit/refBlock*refBlock)
		}
	}
	id := refID(req.GetName()) + r.idTail
	var answer *csi.CreateVolumeResponse
	err = r.operate(ctx, id, func() error {
		v := r.volumes[id]
		switch {
		case v == nil:
			if limit > 0 && size > limit || size == 0 {
				return status.Errorf(codes.OutOfRange, "no multiple of %d lies between %d and %d", refBlock, required, limit)
			}
			stored := proto.Clone(req).(*csi.CreateVolumeRequest)
			stored.Parameters = parameters
			v = &refVolume{
				Volume:  &csi.Volume{Id: id, CapacityBytes: size, Attributes: map[string]string{"pool": "ref"}},
				request: stored,
				grants:  map[string]*csi.ControllerPublishVolumeRequest{},
			}
			r.volumes[id] = v
			r.volumesEver = append(r.volumesEver, req.GetName())
		case v.GetCapacityBytes() < required || limit > 0 && v.GetCapacityBytes() > limit:
			return status.Errorf(codes.AlreadyExists, "the volume exists with %d bytes", v.GetCapacityBytes())
		case !maps.Equal(v.request.GetParameters(), parameters):
			return status.Error(codes.AlreadyExists, "the volume exists with other parameters")
		case !sameCapabilities(v.request.GetVolumeCapabilities(), req.GetVolumeCapabilities()):
			return status.Error(codes.AlreadyExists, "the volume exists with other capabilities")
		}
		answer = &csi.CreateVolumeResponse{Volume: proto.Clone(v.Volume).(*csi.Volume)}
		return nil
	})
	return answer, err
}

func (r *reference) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, invalid("volume_id is required")
	}
	return &csi.DeleteVolumeResponse{}, r.operate(ctx, id, func() error {
		if v := r.volumes[id]; v != nil && len(v.grants) > 0 {
			return status.Errorf(codes.FailedPrecondition, "the volume is published to %v", slices.Sorted(maps.Keys(v.grants)))
		}
		delete(r.volumes, id)
		delete(r.data, id)
		return nil
	})
}

func (r *reference) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := req.GetVolumeId(), req.GetNodeId()
	if id == "" || node == "" {
		return nil, invalid("volume_id and node_id are required")
	}
	if err := wellFormed(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	err := r.operate(ctx, id, func() error {
		v := r.volumes[id]
		if v == nil {
			return notFound("volume", id)
		}
		if !r.nodes[node] {
			return notFound("node", node)
		}
		if have := v.grants[node]; have != nil {
			if !proto.Equal(have.GetVolumeCapability(), req.GetVolumeCapability()) || have.GetReadonly() != req.GetReadonly() {
				return status.Error(codes.AlreadyExists, "the volume is published there with another capability or readonly flag")
			}
			return nil
		}
		if !slices.ContainsFunc(v.request.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return proto.Equal(c, req.GetVolumeCapability()) }) {
			return status.Error(codes.FailedPrecondition, "the volume was not made for that")
		}
		for other := range v.grants {
			if !multi(req.GetVolumeCapability()) {
				return status.Errorf(codes.FailedPrecondition, "the volume is published to %q", other)
			}
		}
		v.grants[node] = proto.Clone(req).(*csi.ControllerPublishVolumeRequest)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{PublishInfo: map[string]string{"portal": "192.0.2.1"}}, nil
}

func (r *reference) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id, node := req.GetVolumeId(), req.GetNodeId()
	if id == "" {
		return nil, invalid("volume_id is required")
	}
	return &csi.ControllerUnpublishVolumeResponse{}, r.operate(ctx, id, func() error {
		v := r.volumes[id]
		if v == nil {
			return notFound("volume", id)
		}
		if node == "" {
			clear(v.grants)
			return nil
		}
		if !r.nodes[node] {
			return notFound("node", node)
		}
		delete(v.grants, node)
		return nil
	})
}

func (r *reference) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume_id and volume_capabilities are required")
	}
	if err := allWellFormed(req.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.volumes[req.GetVolumeId()]
	if v == nil {
		return nil, notFound("volume", req.GetVolumeId())
	}
	for _, want := range req.GetVolumeCapabilities() {
		if !slices.ContainsFunc(v.request.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return proto.Equal(c, want) }) {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume was not made for " + want.GetAccessMode().GetMode().String()}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Supported: true}, nil
}

// Tokens of ListVolumes name the id after which the next page begins.
const refToken = "after-"

func (r *reference) ListVolumes(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, invalid("max_entries is negative")
	}
	after, isToken := strings.CutPrefix(req.GetStartingToken(), refToken)
	if req.GetStartingToken() != "" && !isToken {
		return nil, status.Error(codes.Aborted, "starting_token is not one of ours")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &csi.ListVolumesResponse{}
	for _, id := range slices.Sorted(maps.Keys(r.volumes)) {
		if id <= after {
			continue
		}
		if n := req.GetMaxEntries(); n > 0 && len(resp.GetEntries()) == int(n) {
			resp.NextToken = refToken + resp.GetEntries()[n-1].GetVolume().GetId()
			break
		}
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{Volume: proto.Clone(r.volumes[id].Volume).(*csi.Volume)})
	}
	return resp, nil
}

func (r *reference) GetCapacity(_ context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if err := allWellFormed(req.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if _, err := ownParameters(req.GetParameters()); err != nil {
		return nil, err
	}
	resp := &csi.GetCapacityResponse{}
	if r.supports(req.GetVolumeCapabilities()...) == nil {
		resp.AvailableCapacity = refMax
	}
	return resp, nil
}

func (r *reference) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for t := range csi.ControllerServiceCapability_RPC_Type(5) {
		if t != csi.ControllerServiceCapability_RPC_UNKNOWN {
			resp.Capabilities = append(resp.Capabilities, controllerCapability(t))
		}
	}
	return resp, nil
}

func controllerCapability(t csi.ControllerServiceCapability_RPC_Type) *csi.ControllerServiceCapability {
	return &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}}
}

func (r *reference) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if id == "" || path == "" {
		return nil, invalid("volume_id and staging_target_path are required")
	}
	if err := wellFormed(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) {
		return nil, invalid("staging_target_path is relative")
	}
	return &csi.NodeStageVolumeResponse{}, r.operate(ctx, id, func() error {
		v := r.volumes[id]
		if v == nil {
			return notFound("volume", id)
		}
		if have := r.staged[place{id, path}]; have != nil {
			if !proto.Equal(have, req.GetVolumeCapability()) {
				return status.Error(codes.AlreadyExists, "the volume is staged there with another capability")
			}
			return nil
		}
		if v.grants[refNode] == nil || !slices.ContainsFunc(v.request.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return proto.Equal(c, req.GetVolumeCapability()) }) {
			return status.Error(codes.FailedPrecondition, "the volume is not published here for that")
		}
		r.staged[place{id, path}] = req.GetVolumeCapability()
		if req.GetVolumeCapability().GetBlock() == nil {
			r.mounts[path] = 1
		}
		return nil
	})
}

func (r *reference) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if id == "" || path == "" {
		return nil, invalid("volume_id and staging_target_path are required")
	}
	return &csi.NodeUnstageVolumeResponse{}, r.operate(ctx, id, func() error {
		if r.staged[place{id, path}] != nil {
			delete(r.staged, place{id, path})
			delete(r.mounts, path)
		}
		return nil
	})
}

func (r *reference) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if id == "" || target == "" {
		return nil, invalid("volume_id and target_path are required")
	}
	if err := wellFormed(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(target) {
		return nil, invalid("target_path is relative")
	}
	req = proto.Clone(req).(*csi.NodePublishVolumeRequest)
	req.NodePublishSecrets = nil
	return &csi.NodePublishVolumeResponse{}, r.operate(ctx, id, func() error {
		if r.volumes[id] == nil {
			return notFound("volume", id)
		}
		if req.GetStagingTargetPath() == "" {
			return status.Error(codes.FailedPrecondition, "staging_target_path is not set")
		}
		if r.staged[place{id, req.GetStagingTargetPath()}] == nil {
			return status.Error(codes.FailedPrecondition, "the volume is not staged there")
		}
		if have := r.targets[target]; have != nil {
			if !proto.Equal(have.request, req) {
				return status.Error(codes.AlreadyExists, "the volume is published there with other arguments")
			}
			return nil
		}
		for other, have := range r.targets {
			if have.request.GetVolumeId() == id && !multi(req.GetVolumeCapability()) {
				return status.Errorf(codes.FailedPrecondition, "the volume is published at %s", other)
			}
		}
		grant := r.volumes[id].grants[refNode]
		r.targets[target] = &refTarget{request: req, readonly: req.GetReadonly() || grant.GetReadonly()}
		r.mounts[target] = 1
		return nil
	})
}

func (r *reference) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if id == "" || target == "" {
		return nil, invalid("volume_id and target_path are required")
	}
	return &csi.NodeUnpublishVolumeResponse{}, r.operate(ctx, id, func() error {
		if have := r.targets[target]; have != nil && have.request.GetVolumeId() == id {
			delete(r.targets, target)
			if r.mounts[target]--; r.mounts[target] == 0 {
				delete(r.mounts, target)
			}
		}
		return nil
	})
}

//nolint:revive // the name is that of the interface
func (r *reference) NodeGetId(context.Context, *csi.NodeGetIdRequest) (*csi.NodeGetIdResponse, error) {
	return &csi.NodeGetIdResponse{NodeId: refNode}, nil
}

func (r *reference) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{nodeCapability(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)}}, nil
}

func nodeCapability(t csi.NodeServiceCapability_RPC_Type) *csi.NodeServiceCapability {
	return &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}}
}
