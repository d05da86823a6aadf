package csi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/volume"
)

func TestConditionsKeepTheirSeverity(t *testing.T) {
	h := healthMessage("tank/v", []volume.Condition{{Severity: volume.Degraded, Reason: "A", Message: "a"}, {Severity: volume.Inaccessible, Reason: "B", Message: "b"}})
	if h.GetVolumeId() != "tank/v" || len(h.GetHealthStatuses()) != 2 {
		t.Fatalf("%v", h)
	}
	for k, want := range []struct {
		status          csi.VolumeHealthErrorType
		reason, message string
	}{{csi.VolumeHealthErrorType_DEGRADED, "A", "a"}, {csi.VolumeHealthErrorType_INACCESSIBLE, "B", "b"}} {
		if got := h.GetHealthStatuses()[k]; got.GetStatus() != want.status || got.GetReason() != want.reason || got.GetMessage() != want.message {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A controller that lists health must also tell it of one volume.
func TestControllerCapabilities(t *testing.T) {
	r, err := (&Controller{}).ControllerGetCapabilities(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	has := map[csi.ControllerServiceCapability_RPC_Type]int{}
	for _, c := range r.GetCapabilities() {
		has[c.GetRpc().GetType()]++
	}
	for _, want := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	} {
		if has[want] != 1 {
			t.Errorf("%s is listed %d times", want, has[want])
		}
	}
}
