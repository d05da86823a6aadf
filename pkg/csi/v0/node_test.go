package v0

import (
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func TestNodeGetIdIsTheIdOfNodeGetInfo(t *testing.T) {
	v1 := &recorder{answer: &csi.NodeGetInfoResponse{
		NodeId:             "worker-1@192.0.2.21",
		MaxVolumesPerNode:  16,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"zone": "z"}},
	}}
	got, err := NewNode(v1).NodeGetId(t.Context(), &csiv0.NodeGetIdRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetNodeId() != "worker-1@192.0.2.21" {
		t.Errorf("node id %q", got.GetNodeId())
	}
}

func TestNodeCapabilitiesShowOnlyWhatV0Knows(t *testing.T) {
	all := []*csi.NodeServiceCapability{nil, {}}
	for number := range int32(20) {
		all = append(all, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_Type(number)},
		}})
	}
	answer, err := NewNode(&recorder{answer: &csi.NodeGetCapabilitiesResponse{Capabilities: all}}).
		NodeGetCapabilities(t.Context(), &csiv0.NodeGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range answer.GetCapabilities() {
		got = append(got, c.GetRpc().GetType().String())
	}
	if diff := cmp.Diff([]string{"STAGE_UNSTAGE_VOLUME"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
