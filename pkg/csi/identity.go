// Package csi serves the CSI services. The csi.v1 servers here are the core;
// pkg/csi/v0 translates csi.v0 onto them. They check requests, call the domain
// and turn its answers and errors into the specification's words; what counts
// as done is decided below.
package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Identity serves the csi.v1 Identity service.
type Identity struct {
	csi.UnimplementedIdentityServer
	// Name and Version are the driver's.
	Name, Version string
	// Controller says whether the Controller service is served here.
	Controller bool
	// Topology says whether nodes have topology segments.
	Topology bool
	// Ready reports why the driver is not ready, or nil. It must not block.
	Ready func() error
}

// GetPluginInfo names the driver.
func (s *Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: s.Name, VendorVersion: s.Version}, nil
}

// GetPluginCapabilities says which services are here, and that a volume grows
// while it is used.
func (s *Identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r := &csi.GetPluginCapabilitiesResponse{}
	add := func(t csi.PluginCapability_Service_Type) {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: t}}})
	}
	if s.Controller {
		add(csi.PluginCapability_Service_CONTROLLER_SERVICE)
		add(csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}})
	}
	if s.Topology {
		add(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	return r, nil
}

// Probe tells whether the driver is ready, from what was last seen.
func (s *Identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(s.Ready() == nil)}, nil
}

// NotReady is the reason that a csi.v1 answer has no field for.
func (s *Identity) NotReady() error { return s.Ready() }
