//go:build vm

package machines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// healthy is the endpoint of a second storage host's daemon, in the node's own
// machine: a server that has nothing to do with the one that dies.
const healthy = "unix:///run/healthy/csi.sock"

// healthyUp makes a storage host of the node's machine too.
const healthyUp = `
hack/vm/services start zfs
zpool create -o cachefile=none -O mountpoint=/well well /dev/vda
zfs create well/csi
hack/vm/services start nfs lio
mkdir -p /run/healthy
`

func (p *pair) healthyServer() {
	p.t.Helper()
	p.node.sh(healthyUp)
	// A node has one key, so its storage hosts share theirs.
	p.node.sh("umask 077; echo " + quote(p.storage.sh("cat /var/lib/tarn/master.key")) + " >/var/lib/tarn/master.key")
	p.node.start("bin/tarn", "serve", "--mode", "controller", "--endpoint", healthy, "--pool", "well=well/csi", "--address", nodeAddress)
	waitReady(p.t, p.node, healthy)
}

// A server's packets are lost for minutes: calls about its volumes end at their
// deadline, calls about another server's are as fast as ever, and when it is back
// everything goes on and nothing is left behind.
func TestDeadServer(t *testing.T) {
	const rounds, deadline = 6, 20 * time.Second
	p := newPair(t)
	p.healthyServer()
	volumes := []*volume{p.create("d-nfs", "nfs"), p.create("d-iscsi", "iscsi")}
	late := []*volume{p.create("e-nfs", "nfs"), p.create("e-iscsi", "iscsi")}
	for _, v := range volumes {
		p.up(v)
		p.work(v)
	}
	p.progress(volumes...)
	well := []*volume{
		p.createOn(&volume{on: p.node, name: "w-nfs", endpoint: healthy}, "nfs"),
		p.createOn(&volume{on: p.node, name: "w-iscsi", endpoint: healthy}, "iscsi"),
	}
	// cycles are the times of whole rounds with the healthy server's volumes.
	cycles := func() []time.Duration {
		var took []time.Duration
		for range rounds {
			for _, v := range well {
				start := time.Now()
				p.up(v)
				p.down(v)
				took = append(took, time.Since(start))
			}
		}
		slices.Sort(took)
		return took
	}
	cycles() // the first ones load modules
	undisturbed := cycles()

	p.storage.sh("nft add table inet dead; nft 'add chain inet dead in { type filter hook input priority 0 ; policy drop ; }'; nft 'add chain inet dead out { type filter hook output priority 0 ; policy drop ; }'")
	type outcome struct {
		what string
		err  error
		took time.Duration
	}
	outcomes := make(chan outcome)
	var expected int
	about := func(method, request string) {
		expected++
		go func() {
			start := time.Now()
			_, err := p.node.tryCall("", deadline, method, request)
			outcomes <- outcome{method + " " + request, err, time.Since(start)}
		}()
	}
	for _, v := range late {
		p.node.sh("mkdir -p /mnt/" + v.name + "/staging /mnt/" + v.name + "/target")
		about(v.stage())
	}
	for _, v := range volumes {
		about("csi.v1.Node/NodeGetVolumeStats", fmt.Sprintf(`{"volume_id":%q,"volume_path":"/mnt/%s/target"}`, v.id, v.name))
	}
	disturbed := cycles()
	for range expected {
		o := <-outcomes
		// Statistics of a disk come from the filesystem, which the lost server does
		// not stop at once.
		if o.err == nil && !strings.Contains(o.what, "NodeGetVolumeStats") {
			t.Errorf("%s succeeded without its server", o.what)
		}
		if over := o.took - deadline; over > deadline/2 {
			t.Errorf("%s ended %s after its deadline", o.what, over.Round(time.Second))
		}
		t.Logf("%s ended after %s: %v", o.what, o.took.Round(100*time.Millisecond), o.err)
	}
	t.Logf("rounds with the healthy server: undisturbed %v, beside the dead one %v", undisturbed, disturbed)
	if was, is := undisturbed[len(undisturbed)-1], disturbed[len(disturbed)-1]; is > 2*was {
		t.Errorf("a call about a healthy server takes %s beside a dead one, and %s otherwise", is, was)
	}

	p.storage.sh("nft delete table inet dead")
	p.progress(volumes...)
	p.endWork(volumes...)
	for _, v := range late {
		p.up(v)
	}
	for _, v := range slices.Concat(volumes, late) {
		p.down(v)
		p.remove(v)
	}
	for _, v := range well {
		p.remove(v)
	}
	p.node.sh("hack/vm/services stop nfs; zpool destroy well")
	p.leftNothing()
	if left := p.node.sh("ps -eo stat,args | grep -E '(mount|umount|iscsiadm)' | grep -v -e grep -e rpc || true"); left != "" {
		t.Errorf("processes are left on the node:\n%s", left)
	}
}

// A node dies with a file open and a disk mounted: it is detached by force, and
// its volumes are deleted.
func (p *pair) deadNode() {
	volumes := []*volume{p.create("n-nfs", "nfs"), p.create("n-iscsi", "iscsi")}
	for _, v := range volumes {
		p.up(v)
		p.work(v)
	}
	p.progress(volumes...)
	p.node.stop("--kill")
	// One after the other: the disk is still published when the share is deleted.
	for _, v := range volumes {
		p.remove(v)
	}
	p.leftNothingOnStorage()
}
