package csi

import (
	"errors"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func TestIdentity(t *testing.T) {
	var ready error
	s := &Identity{Name: "io.github.tarn-csi", Version: "1.2.3", Ready: func() error { return ready }}
	if r, err := s.GetPluginInfo(t.Context(), nil); err != nil || r.GetName() != s.Name || r.GetVendorVersion() != "1.2.3" {
		t.Errorf("info: %v, %v", r, err)
	}
	for _, controller := range []bool{false, true} {
		s.Controller = controller
		r, err := s.GetPluginCapabilities(t.Context(), nil)
		for _, want := range []csi.PluginCapability_Service_Type{
			csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
		} {
			has := slices.ContainsFunc(r.GetCapabilities(), func(c *csi.PluginCapability) bool { return c.GetService().GetType() == want })
			if err != nil || has != controller {
				t.Errorf("controller %t, %s: %v, %v", controller, want, r, err)
			}
		}
		online := false
		for _, c := range r.GetCapabilities() {
			online = online || c.GetVolumeExpansion().GetType() == csi.PluginCapability_VolumeExpansion_ONLINE
		}
		if online != controller {
			t.Errorf("controller %t: online expansion is %t", controller, online)
		}
	}
	for _, s.Topology = range []bool{false, true} {
		r, err := s.GetPluginCapabilities(t.Context(), nil)
		has := slices.ContainsFunc(r.GetCapabilities(), func(c *csi.PluginCapability) bool {
			return c.GetService().GetType() == csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS
		})
		if err != nil || has != s.Topology {
			t.Errorf("topology %t: %v, %v", s.Topology, r, err)
		}
	}
	// csi.v1: not ready is an answer and no error.
	for _, ready = range []error{nil, errors.New("no module")} {
		r, err := s.Probe(t.Context(), nil)
		if err != nil || r.GetReady() == nil || r.GetReady().GetValue() != (ready == nil) || s.NotReady() != ready {
			t.Errorf("ready %v: %v, %v", ready, r, err)
		}
	}
}
