package v0

import (
	"context"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// recorder is every v1 server at once. It keeps the last call and gives the
// answer and the error that it was told to give, both of them.
type recorder struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	answer proto.Message
	err    error

	ctx     context.Context
	method  string
	request proto.Message
}

func record[A proto.Message](ctx context.Context, r *recorder, method string, request proto.Message) (A, error) {
	r.ctx, r.method, r.request = ctx, method, request
	answer, _ := r.answer.(A)
	return answer, r.err
}

// last returns the request of the last call, failing where it went elsewhere.
func last[Q proto.Message](t *testing.T, r *recorder) Q {
	t.Helper()
	request, ok := r.request.(Q)
	if !ok {
		t.Fatalf("called %q with %T, want %T", r.method, r.request, request)
	}
	return request
}

func (r *recorder) GetPluginInfo(ctx context.Context, q *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return record[*csi.GetPluginInfoResponse](ctx, r, "GetPluginInfo", q)
}

func (r *recorder) GetPluginCapabilities(ctx context.Context, q *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return record[*csi.GetPluginCapabilitiesResponse](ctx, r, "GetPluginCapabilities", q)
}

func (r *recorder) Probe(ctx context.Context, q *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return record[*csi.ProbeResponse](ctx, r, "Probe", q)
}

func (r *recorder) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return record[*csi.CreateVolumeResponse](ctx, r, "CreateVolume", q)
}

func (r *recorder) DeleteVolume(ctx context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return record[*csi.DeleteVolumeResponse](ctx, r, "DeleteVolume", q)
}

func (r *recorder) ControllerPublishVolume(ctx context.Context, q *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return record[*csi.ControllerPublishVolumeResponse](ctx, r, "ControllerPublishVolume", q)
}

func (r *recorder) ControllerUnpublishVolume(ctx context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return record[*csi.ControllerUnpublishVolumeResponse](ctx, r, "ControllerUnpublishVolume", q)
}

func (r *recorder) UnpublishStrict(ctx context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return record[*csi.ControllerUnpublishVolumeResponse](ctx, r, "UnpublishStrict", q)
}

func (r *recorder) ValidateVolumeCapabilities(ctx context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return record[*csi.ValidateVolumeCapabilitiesResponse](ctx, r, "ValidateVolumeCapabilities", q)
}

func (r *recorder) ListVolumes(ctx context.Context, q *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return record[*csi.ListVolumesResponse](ctx, r, "ListVolumes", q)
}

func (r *recorder) GetCapacity(ctx context.Context, q *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return record[*csi.GetCapacityResponse](ctx, r, "GetCapacity", q)
}

func (r *recorder) ControllerGetCapabilities(ctx context.Context, q *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return record[*csi.ControllerGetCapabilitiesResponse](ctx, r, "ControllerGetCapabilities", q)
}

func (r *recorder) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return record[*csi.NodeStageVolumeResponse](ctx, r, "NodeStageVolume", q)
}

func (r *recorder) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return record[*csi.NodeUnstageVolumeResponse](ctx, r, "NodeUnstageVolume", q)
}

func (r *recorder) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return record[*csi.NodePublishVolumeResponse](ctx, r, "NodePublishVolume", q)
}

func (r *recorder) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return record[*csi.NodeUnpublishVolumeResponse](ctx, r, "NodeUnpublishVolume", q)
}

func (r *recorder) NodeGetInfo(ctx context.Context, q *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return record[*csi.NodeGetInfoResponse](ctx, r, "NodeGetInfo", q)
}

func (r *recorder) NodeGetCapabilities(ctx context.Context, q *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return record[*csi.NodeGetCapabilitiesResponse](ctx, r, "NodeGetCapabilities", q)
}
