package csi

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/node"
)

func TestNodeInfo(t *testing.T) {
	id := ident.NodeID{Name: "worker-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.21")}}
	n := &Node{Node: &node.Service{Config: node.Config{NodeID: id}}}
	got, err := n.NodeGetInfo(t.Context(), nil)
	if err != nil || !proto.Equal(got, &csi.NodeGetInfoResponse{NodeId: id.String()}) {
		t.Errorf("%v, %v", got, err)
	}
	n.MaxVolumes, n.Topology = 40, map[string]string{"example.com/zone": "z1"}
	got, err = n.NodeGetInfo(t.Context(), nil)
	if err != nil || got.GetMaxVolumesPerNode() != 40 || !maps.Equal(got.GetAccessibleTopology().GetSegments(), n.Topology) {
		t.Errorf("%v, %v", got, err)
	}
}

// What is advertised is what is served: the rest would be UNIMPLEMENTED.
func TestNodeCapabilities(t *testing.T) {
	want := map[csi.NodeServiceCapability_RPC_Type]bool{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:     true,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:         true,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME:            true,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH:        true,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH:       true,
	}
	r, err := (&Node{}).NodeGetCapabilities(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[csi.NodeServiceCapability_RPC_Type]bool{}
	for _, c := range r.GetCapabilities() {
		got[c.GetRpc().GetType()] = true
	}
	if !maps.Equal(got, want) || len(r.GetCapabilities()) != len(want) {
		t.Errorf("got %v", r)
	}
}
