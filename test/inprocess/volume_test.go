package inprocess

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// A volume is made, published, grown, changed and judged over the socket.
func TestLifeOfAVolumeInV1(t *testing.T) {
	for _, protocol := range []string{"nfs", "iscsi"} {
		t.Run(protocol, func(t *testing.T) {
			d := Start(t)
			conn, err := grpc.NewClient(d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c, ctx := csiv1.NewControllerClient(conn), t.Context()
			if _, err := csiv1.NewIdentityClient(conn).Probe(ctx, &csiv1.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			use := &csiv1.VolumeCapability{
				AccessType: &csiv1.VolumeCapability_Mount{Mount: &csiv1.VolumeCapability_MountVolume{}},
				AccessMode: &csiv1.VolumeCapability_AccessMode{Mode: csiv1.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
			}
			made, err := c.CreateVolume(ctx, &csiv1.CreateVolumeRequest{
				Name: "v", CapacityRange: &csiv1.CapacityRange{RequiredBytes: 1 << 30}, VolumeCapabilities: []*csiv1.VolumeCapability{use},
				Parameters: map[string]string{"protocol": protocol, "csi.storage.k8s.io/pvc/name": "data"}, MutableParameters: map[string]string{"zfs.sync": "always"},
				AccessibilityRequirements: &csiv1.TopologyRequirement{Requisite: []*csiv1.Topology{{Segments: map[string]string{"zone": "a"}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			id := made.GetVolume().GetVolumeId()
			if len(made.GetVolume().GetAccessibleTopology()) > 0 {
				t.Error("a pool has no topology")
			}
			if _, err := c.ControllerPublishVolume(ctx, &csiv1.ControllerPublishVolumeRequest{VolumeId: id, NodeId: OtherNodeID, VolumeCapability: use}); err != nil {
				t.Fatal(err)
			}
			grown, err := c.ControllerExpandVolume(ctx, &csiv1.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csiv1.CapacityRange{RequiredBytes: 2 << 30}, VolumeCapability: use})
			if err != nil || grown.GetCapacityBytes() != 2<<30 || grown.GetNodeExpansionRequired() != (protocol == "iscsi") {
				t.Errorf("%v, %v", grown, err)
			}
			if _, err := c.ControllerModifyVolume(ctx, &csiv1.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"zfs.compression": "zstd"}}); err != nil {
				t.Error(err)
			}
			props, err := d.Storage.Pool.Get(ctx, storage.Parent+"/v")
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"sync": "always", "compression": "zstd", "tarn:owner": `{"claim":"data"}`} {
				if got, _ := props.Own(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			got, err := c.ControllerGetVolume(ctx, &csiv1.ControllerGetVolumeRequest{VolumeId: id})
			if err != nil || got.GetVolume().GetCapacityBytes() != 2<<30 || len(got.GetStatus().GetPublishedNodeIds()) != 1 || got.GetStatus().GetPublishedNodeIds()[0] != OtherNodeID {
				t.Errorf("%v, %v", got, err)
			}
			wantStatuses := func(want ...csiv1.VolumeHealthErrorType) {
				t.Helper()
				one, err := c.ControllerGetVolumeHealth(ctx, &csiv1.ControllerGetVolumeHealthRequest{VolumeId: id})
				if err != nil || one.GetVolumeHealth().GetVolumeId() != id || len(one.GetVolumeHealth().GetHealthStatuses()) != len(want) {
					t.Fatalf("%v, %v", one, err)
				}
				all, err := c.ControllerListVolumeHealth(ctx, &csiv1.ControllerListVolumeHealthRequest{})
				if err != nil || len(all.GetEntries()) != min(len(want), 1) {
					t.Fatalf("%v, %v", all, err)
				}
				for k, s := range want {
					if st := one.GetVolumeHealth().GetHealthStatuses()[k]; st.GetStatus() != s || st.GetReason() == "" || st.GetMessage() == "" {
						t.Errorf("%v, want %s", st, s)
					}
				}
			}
			wantStatuses()
			d.Storage.Pool.SetState("DEGRADED")
			wantStatuses(csiv1.VolumeHealthErrorType_DEGRADED)
			d.Storage.Pool.SetState("ONLINE")
			wantStatuses()
		})
	}
}
