//go:build guest

package e2e

import (
	"testing"

	sanityv0 "github.com/tarn-csi/tarn/test/sanity/v0"
)

// The csi.v0 suite passes for every kind of volume.
func TestConformanceV0(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			other := map[string]string{"zfs.compression": "off"}
			for key, value := range k.parameters {
				other[key] = value
			}
			sanityv0.Run(t, sanityv0.Options{
				Endpoint:           host.daemon.Endpoint(),
				Parameters:         k.parameters,
				OtherParameters:    other,
				VolumeSize:         k.sizeBytes,
				Block:              k.block,
				FSType:             k.fsType,
				RefusesOtherAccess: k.parameters["protocol"] == "nfs",
				MultiNode:          k.multiNode,
				OtherNodeID:        "node-2@127.0.0.2",
				Timeout:            rpcTimeout,
			})
		})
	}
}
