package v0_test

import (
	"testing"

	v1 "github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/csi/v0"
)

// The real node service can do more than csi.v0 has names for.
func TestNodeAdvertisesOnlyWhatV0Knows(t *testing.T) {
	answer, err := v0.NewNode(&v1.Node{}).NodeGetCapabilities(t.Context(), nil)
	if err != nil || len(answer.GetCapabilities()) != 1 || answer.GetCapabilities()[0].GetRpc().GetType().String() != "STAGE_UNSTAGE_VOLUME" {
		t.Errorf("%v, %v", answer, err)
	}
}
