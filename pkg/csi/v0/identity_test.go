package v0

import (
	"errors"
	"strings"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tarn-csi/tarn/pkg/fault"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// reasoned is a v1 server that can say why it is not ready.
type reasoned struct {
	*recorder
	reason error
}

func (r reasoned) NotReady() error { return r.reason }

func TestProbe(t *testing.T) {
	ready := func(is bool) *csi.ProbeResponse { return &csi.ProbeResponse{Ready: wrapperspb.Bool(is)} }
	for name, test := range map[string]struct {
		v1   csi.IdentityServer
		want string // part of the error's text; empty is success
	}{
		"ready":             {v1: &recorder{answer: ready(true)}},
		"ready is absent":   {v1: &recorder{answer: &csi.ProbeResponse{}}},
		"no answer":         {v1: &recorder{}},
		"not ready":         {v1: &recorder{answer: ready(false)}, want: "not ready: the plugin is starting"},
		"with a reason":     {v1: reasoned{&recorder{answer: ready(false)}, errors.New("zfs is missing")}, want: "not ready: zfs is missing"},
		"reason went away":  {v1: reasoned{&recorder{answer: ready(false)}, nil}, want: "not ready: the plugin is starting"},
		"reason of a kind":  {v1: reasoned{&recorder{answer: ready(false)}, fault.New(fault.Unavailable, "pool is suspended")}, want: "pool is suspended"},
		"ready with reason": {v1: reasoned{&recorder{answer: ready(true)}, errors.New("stale")}},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := NewIdentity(test.v1).Probe(t.Context(), &csiv0.ProbeRequest{})
			if test.want == "" {
				if err != nil || answer == nil {
					t.Errorf("answer %v, error %v, want success", answer, err)
				}
				return
			}
			if fault.Kind(err) != fault.Precondition || errors.Is(err, fault.Unavailable) {
				t.Errorf("error %v is not a plain fault.Precondition", err)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not hold %q", err, test.want)
			}
		})
	}
}

func TestPluginCapabilitiesShowOnlyWhatV0Knows(t *testing.T) {
	all := []*csi.PluginCapability{nil, {}, {Type: &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
	}}}
	for number := range int32(20) {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_Type(number)},
		}})
	}
	got, err := NewIdentity(&recorder{answer: &csi.GetPluginCapabilitiesResponse{Capabilities: all}}).
		GetPluginCapabilities(t.Context(), &csiv0.GetPluginCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &csiv0.GetPluginCapabilitiesResponse{Capabilities: []*csiv0.PluginCapability{{
		Type: &csiv0.PluginCapability_Service_{Service: &csiv0.PluginCapability_Service{
			Type: csiv0.PluginCapability_Service_CONTROLLER_SERVICE,
		}},
	}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
