//go:build vm

package machines

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/test/faults/storm"
)

// fewLosses and manyLosses are how often the power fails, in the short form of
// the test and in the long one.
const (
	fewLosses  = 2
	manyLosses = 50
	// callLasts is about how long a call takes in an emulated machine: somewhere
	// in it the power fails.
	callLasts = 1500 * time.Millisecond
)

// call is a call to the storage host.
type call struct{ method, request string }

// life is what a volume goes through, with a snapshot and a clone.
func life(protocol, nodeID string) []call {
	name := "s-" + protocol
	id, snapshot, clone := "tank/"+name, "tank/"+name+"@s", "tank/"+name+"-clone"
	create := func(name, more string) string {
		return fmt.Sprintf(`{"name":%q,"capacity_range":{"required_bytes":"67108864"},"volume_capabilities":[%s],"parameters":{"protocol":%q}%s}`,
			name, capability, protocol, more)
	}
	return []call{
		{"csi.v1.Controller/CreateVolume", create(name, "")},
		{"csi.v1.Controller/ControllerPublishVolume", fmt.Sprintf(`{"volume_id":%q,"node_id":%q,"volume_capability":%s}`, id, nodeID, capability)},
		{"csi.v1.Controller/CreateSnapshot", fmt.Sprintf(`{"source_volume_id":%q,"name":"s"}`, id)},
		{"csi.v1.Controller/CreateVolume", create(name+"-clone", fmt.Sprintf(`,"volume_content_source":{"snapshot":{"snapshot_id":%q}}`, snapshot))},
		{"csi.v1.Controller/ControllerExpandVolume", fmt.Sprintf(`{"volume_id":%q,"capacity_range":{"required_bytes":"134217728"}}`, id)},
		{"csi.v1.Controller/ControllerUnpublishVolume", fmt.Sprintf(`{"volume_id":%q,"node_id":%q}`, id, nodeID)},
		{"csi.v1.Controller/DeleteVolume", fmt.Sprintf(`{"volume_id":%q}`, clone)},
		{"csi.v1.Controller/DeleteSnapshot", fmt.Sprintf(`{"snapshot_id":%q}`, snapshot)},
		{"csi.v1.Controller/DeleteVolume", fmt.Sprintf(`{"volume_id":%q}`, id)},
	}
}

// The storage host loses its power again and again, in the middle of a call and
// of a node's writes: it boots, and without any call the exports come back as
// they were, the node's open files go on, what was acknowledged is there, and the
// call that was cut off succeeds when it is made again.
func (p *pair) powerLoss() {
	t := p.t
	seed, err := storm.Seed()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("repeat with TARN_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	losses := manyLosses
	if testing.Short() {
		losses = fewLosses
	}
	volumes := []*volume{p.create("p-nfs", "nfs"), p.create("p-iscsi", "iscsi")}
	for _, v := range volumes {
		p.up(v)
		p.work(v)
	}
	p.progress(volumes...)
	before := p.exportsOf(volumes...)

	var calls []call
	if testing.Short() { // in two calls that few losses would not come to in order
		calls = append(calls, life("nfs", p.nodeID)...)
		for skipped := random.IntN(len(calls) - losses); skipped > 0; skipped-- {
			p.storage.call(calls[0].method, calls[0].request)
			calls = calls[1:]
		}
	}
	for lost := 0; lost < losses || len(calls) > 0; lost++ {
		if len(calls) == 0 {
			calls = life([]string{"nfs", "iscsi"}[lost/len(life("nfs", ""))%2], p.nodeID)
		}
		c := calls[0]
		calls = calls[1:]
		if lost < losses {
			moment := time.Duration(random.Int64N(int64(callLasts)))
			t.Logf("%d: the power fails %s after the begin of %s", lost+1, moment.Round(time.Millisecond), c.method)
			p.storage.start("bin/csi-call", c.method, c.request)
			time.Sleep(moment) // where the fault is, not a wait
			p.storage.stop("--kill")
			p.bootStorage()
			if after := p.exportsOf(volumes...); after != before {
				t.Fatalf("the exports are not what they were\nbefore:\n%s\nafter:\n%s", before, after)
			}
			p.progress(volumes...)
		}
		p.storage.call(c.method, c.request)
	}
	p.endWork(volumes...)

	p.wrongOrder(volumes)
	for _, v := range volumes {
		p.down(v)
		p.remove(v)
	}
	p.leftNothing()
}

// wrongOrder boots the storage host with the NFS server before the pool: `tarn
// check` says so, and the daemon puts it right.
func (p *pair) wrongOrder(volumes []*volume) {
	p.t.Helper()
	const check = "bin/tarn check --mode controller --pool tank=tank/csi --address " + storageAddress
	before := p.exportsOf(volumes...)
	p.storage.stop("--kill")
	p.storage.boot()
	p.storage.sh(persistent + "hack/vm/services start nfs lio\n" + importPool)
	if out, err := p.storage.try(check); err == nil {
		p.t.Errorf("tarn check finds nothing wrong although the NFS server was started before the pool:\n%s", out)
	}
	p.serve()
	if after := p.exportsOf(volumes...); after != before {
		p.t.Errorf("the exports are not what they were\nbefore:\n%s\nafter:\n%s", before, after)
	}
	if out, err := p.storage.try(check); err != nil {
		p.t.Errorf("tarn check with everything in order again: %v\n%s", err, out)
	}
}
