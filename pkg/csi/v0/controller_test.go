package v0

import (
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func TestValidateVolumeCapabilities(t *testing.T) {
	for name, test := range map[string]struct {
		v1   *csi.ValidateVolumeCapabilitiesResponse
		want *csiv0.ValidateVolumeCapabilitiesResponse
	}{
		"confirmed": {
			v1: &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
				VolumeCapabilities: []*csi.VolumeCapability{{}},
			}},
			want: &csiv0.ValidateVolumeCapabilitiesResponse{Supported: true},
		},
		"confirmed with a message, which v0 has only for refusals": {
			v1: &csi.ValidateVolumeCapabilitiesResponse{
				Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{}, Message: "fine",
			},
			want: &csiv0.ValidateVolumeCapabilitiesResponse{Supported: true},
		},
		"not confirmed": {
			v1:   &csi.ValidateVolumeCapabilitiesResponse{Message: "NFS has no block volumes"},
			want: &csiv0.ValidateVolumeCapabilitiesResponse{Message: "NFS has no block volumes"},
		},
		"not confirmed, no message": {
			v1:   &csi.ValidateVolumeCapabilitiesResponse{},
			want: &csiv0.ValidateVolumeCapabilitiesResponse{Message: "the volume does not support all of these capabilities"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewController(&recorder{answer: test.v1}).
				ValidateVolumeCapabilities(t.Context(), &csiv0.ValidateVolumeCapabilitiesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestControllerCapabilitiesShowOnlyWhatV0Knows(t *testing.T) {
	all := []*csi.ControllerServiceCapability{nil, {}}
	for number := range int32(40) {
		all = append(all, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(number)},
		}})
	}
	answer, err := NewController(&recorder{answer: &csi.ControllerGetCapabilitiesResponse{Capabilities: all}}).
		ControllerGetCapabilities(t.Context(), &csiv0.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range answer.GetCapabilities() {
		got = append(got, c.GetRpc().GetType().String())
	}
	want := []string{"CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES", "GET_CAPACITY"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVolumesKeepNothingThatOnlyV1Has(t *testing.T) {
	v1 := &csi.Volume{
		CapacityBytes: 1 << 30,
		VolumeId:      "tank/a",
		VolumeContext: map[string]string{"protocol": "nfs"},
		ContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "tank/b@s"},
		}},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"zone": "z"}}},
	}
	want := &csiv0.Volume{CapacityBytes: 1 << 30, Id: "tank/a", Attributes: map[string]string{"protocol": "nfs"}}

	made, err := NewController(&recorder{answer: &csi.CreateVolumeResponse{Volume: v1}}).
		CreateVolume(t.Context(), &csiv0.CreateVolumeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, made.GetVolume(), protocmp.Transform()); diff != "" {
		t.Errorf("CreateVolume (-want +got):\n%s", diff)
	}

	listed, err := NewController(&recorder{answer: &csi.ListVolumesResponse{
		Entries: []*csi.ListVolumesResponse_Entry{{
			Volume: v1,
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{"worker-1@192.0.2.21"}},
		}},
		NextToken: "more",
	}}).ListVolumes(t.Context(), &csiv0.ListVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantList := &csiv0.ListVolumesResponse{Entries: []*csiv0.ListVolumesResponse_Entry{{Volume: want}}, NextToken: "more"}
	if diff := cmp.Diff(wantList, listed, protocmp.Transform()); diff != "" {
		t.Errorf("ListVolumes (-want +got):\n%s", diff)
	}
}
