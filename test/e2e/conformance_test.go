//go:build guest

package e2e

import (
	"context"
	"maps"
	"regexp"
	"testing"

	sanityv0 "github.com/tarn-csi/tarn/test/sanity/v0"
)

// notApplicable are the checks, by what they need, that say nothing about this set-up, and why. Any
// other check that the suite leaves out fails the test.
func notApplicable(k kind) map[string]string {
	list := map[string]string{"needs separate endpoints": "one daemon serves all services here"}
	if !k.multiNode {
		list["supports volumes on several nodes"] = "a filesystem on one disk has one node"
	}
	return list
}

// The csi.v0 suite passes for every kind of volume, with the daemon restarted
// after each step of a volume's life, and leaves nothing out.
func TestConformanceV0(t *testing.T) {
	for _, k := range kinds {
		if k.fsType == "xfs" && testing.Short() {
			continue // it differs from ext4 on the node only, where its own tests are
		}
		var only *regexp.Regexp
		if k.block && testing.Short() { // the storage host makes no difference between what is on a zvol: see ext4
			only = regexp.MustCompile("^(stage|node-publish|multi|lifecycle|wire|cleanup)/")
		}
		t.Run(k.name, func(t *testing.T) {
			other := maps.Clone(k.parameters)
			other["zfs.compression"] = "off"
			o := sanityv0.Options{
				Endpoint:           host.Daemon.Endpoint(),
				Parameters:         k.parameters,
				OtherParameters:    other,
				VolumeSize:         k.sizeBytes,
				Block:              k.block,
				FSType:             k.fsType,
				RefusesOtherAccess: k.protocol() == "nfs",
				Only:               only,
				MultiNode:          k.multiNode,
				OtherNodeID:        "node-2@127.0.0.2",
				// No secret is asked for with derived CHAP; none may come back.
				Secrets: sanityv0.Secrets{
					CreateVolume:            map[string]string{"password": "sentinel-create"},
					ControllerPublishVolume: map[string]string{"password": "sentinel-publish"},
					NodeStageVolume:         map[string]string{"password": "sentinel-stage"},
					NodePublishVolume:       map[string]string{"password": "sentinel-node-publish"},
				},
				Timeout:  rpcTimeout,
				RetryFor: rpcTimeout,
				Pause: func(ctx context.Context, _ string) error {
					if err := host.Daemon.Stop(ctx); err != nil {
						return err
					}
					return host.Daemon.Start(ctx)
				},
			}
			report, err := sanityv0.Execute(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Stopped != "" {
				t.Errorf("stopped: %s", report.Stopped)
			}
			for _, r := range report.Results {
				r.Judge(t, notApplicable(k))
			}
		})
	}
}
