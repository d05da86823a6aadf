package v0

import (
	"context"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/fault"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

type identity struct {
	v1 csi.IdentityServer
}

// NewIdentity returns the v0 Identity service of a v1 server. Where the server
// has a method NotReady() error, its text is the reason that Probe gives.
func NewIdentity(v1 csi.IdentityServer) csiv0.IdentityServer {
	return &identity{v1: v1}
}

func (s *identity) GetPluginInfo(ctx context.Context, _ *csiv0.GetPluginInfoRequest) (*csiv0.GetPluginInfoResponse, error) {
	answer, err := s.v1.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return nil, err
	}
	return &csiv0.GetPluginInfoResponse{
		Name:          answer.GetName(),
		VendorVersion: answer.GetVendorVersion(),
		Manifest:      answer.GetManifest(),
	}, nil
}

func (s *identity) GetPluginCapabilities(ctx context.Context, _ *csiv0.GetPluginCapabilitiesRequest) (*csiv0.GetPluginCapabilitiesResponse, error) {
	answer, err := s.v1.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	return &csiv0.GetPluginCapabilitiesResponse{Capabilities: pluginCapabilities(answer.GetCapabilities())}, nil
}

// Probe fails with fault.Precondition while the v1 server is not ready: the
// answer of v0 has no place to say so.
func (s *identity) Probe(ctx context.Context, _ *csiv0.ProbeRequest) (*csiv0.ProbeResponse, error) {
	answer, err := s.v1.Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return nil, err
	}
	if ready := answer.GetReady(); ready != nil && !ready.GetValue() {
		return nil, fault.New(fault.Precondition, "not ready: %s", s.notReady())
	}
	return &csiv0.ProbeResponse{}, nil
}

// notReady returns a text and not an error, since the kind of the cause must
// not decide the code.
func (s *identity) notReady() string {
	if v1, ok := s.v1.(interface{ NotReady() error }); ok {
		if err := v1.NotReady(); err != nil {
			return err.Error()
		}
	}
	return "the plugin is starting; probe again"
}
