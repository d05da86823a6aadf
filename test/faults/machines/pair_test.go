//go:build vm

package machines

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const storageAddress, nodeAddress = "192.0.2.1", "192.0.2.2"

// outage is how long the node's disks wait for the storage host.
const outage = 10 * time.Minute

// persistent is the part of a storage host that keeps /etc and /var over a boot.
const persistent = `
mkdir -p /persist
blkid /dev/vdb >/dev/null || mkfs.ext4 -q /dev/vdb
mount /dev/vdb /persist
mkdir -p /persist/exports.d /persist/tarn /etc/exports.d /var/lib/tarn
[ -d /persist/nfs ] || cp -a /var/lib/nfs /persist/nfs
mount --bind /persist/exports.d /etc/exports.d
mount --bind /persist/nfs /var/lib/nfs
mount --bind /persist/tarn /var/lib/tarn
hack/vm/services start zfs
`

const importPool = `
if ! zpool import -d /dev/disk/by-id -o cachefile=none tank 2>/dev/null && ! zpool import -f -d /dev/disk/by-id -o cachefile=none tank 2>/dev/null; then
  zpool create -o cachefile=none -O mountpoint=/tank tank /dev/vda
  zfs create tank/csi
fi
zfs mount -a
`

// storageUp boots the storage host's services as an operating system would:
// pool, then mounts, then exports, then the NFS server, then Tarn.
const storageUp = persistent + importPool + `
hack/vm/services start nfs lio
bin/tarn key --create >/dev/null
`

// exported is what the kernel and mountd show of the exports, without what
// changes from boot to boot.
const exported = `
cd /sys/kernel/config/target
for f in $(find . -name vpd_unit_serial -o -name userid -o -name password -o -name userid_mutual -o -name password_mutual \
    -o -name udev_path -o -name authentication -o -name write_protect | sort); do echo "$f $(cat $f)"; done
find iscsi -type l -o -type d | grep -E '/(acls|np|lun)/' | grep -v statistics | sort
sort /var/lib/nfs/etab
`

// pair is a storage host and a node, each a machine of its own, joined by a
// private network.
type pair struct {
	t             *testing.T
	storage, node *guest
	nodeID        string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	dir := t.TempDir()
	net := filepath.Join(dir, "net")
	if err := os.Mkdir(net, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &pair{
		t: t, nodeID: "node-1@" + nodeAddress,
		storage: newGuest(t, "storage", "--disk", filepath.Join(dir, "pool.img")+":2G", "--disk", filepath.Join(dir, "persist.img")+":256M", "--net", net+":1"),
		node:    newGuest(t, "node", "--disk", filepath.Join(dir, "node.img")+":2G", "--net", net+":2"),
	}
	node := make(chan error, 1)
	go func() { node <- p.node.tryBoot() }()
	p.bootStorage()
	if err := <-node; err != nil {
		t.Fatal(err)
	}
	key := p.storage.sh("bin/tarn key node-1")
	p.node.sh("hack/vm/services start iscsi; modprobe nfs; mkdir -p /var/lib/tarn; umask 077; echo " + key + " >/var/lib/tarn/node.key; ping -c 1 -W 10 " + storageAddress)
	p.node.start("bin/tarn", "serve", "--mode", "node", "--node-name", "node-1", "--address", storageAddress, "--log-level", "debug",
		"--iscsi-outage", outage.String()) // longer than a boot takes where there is much else to do
	if id := field(t, p.node.call("csi.v0.Node/NodeGetId", "{}"), "node_id"); id != p.nodeID {
		t.Fatalf("the node says it is %s, want %s", id, p.nodeID)
	}
	return p
}

// TestPair is what a pair goes through in one life, since two boots take longer than most of it.
func TestPair(t *testing.T) {
	p := newPair(t)
	for _, part := range []struct {
		name string
		run  func(p *pair)
	}{
		{"Reboot", (*pair).reboot},
		{"PowerLoss", (*pair).powerLoss},
		{"DeadNode", (*pair).deadNode}, // the last: the node stays dead
	} {
		if !t.Run(part.name, func(t *testing.T) {
			p.t, p.storage.t, p.node.t = t, t, t
			part.run(p)
		}) {
			return // the next one could not tell its own faults from these
		}
	}
}

// bootStorage boots the storage host, and waits until its daemon is ready.
func (p *pair) bootStorage() {
	p.t.Helper()
	p.storage.boot()
	p.storage.sh(storageUp)
	p.serve()
}

func (p *pair) serve() {
	p.t.Helper()
	p.storage.start("bin/tarn", "serve", "--mode", "controller", "--pool", "tank=tank/csi", "--address", storageAddress, "--log-level", "debug")
	waitReady(p.t, p.storage, "")
}

// volume is a volume that a node may use.
type volume struct {
	on                       *guest // its storage host
	name, id, endpoint, info string
}

const capability = `{"mount":{},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}`

// create makes a volume on the pair's storage host and publishes it to the node.
func (p *pair) create(name, protocol string) *volume {
	p.t.Helper()
	return p.createOn(&volume{on: p.storage, name: name}, protocol)
}

func (p *pair) createOn(v *volume, protocol string) *volume {
	p.t.Helper()
	v.id = field(p.t, v.on.callAt(v.endpoint, "csi.v0.Controller/CreateVolume", fmt.Sprintf(
		`{"name":%q,"capacity_range":{"required_bytes":"67108864"},"volume_capabilities":[%s],"parameters":{"protocol":%q}}`,
		v.name, capability, protocol)), "volume", "id")
	v.info = field(p.t, v.on.callAt(v.endpoint, "csi.v0.Controller/ControllerPublishVolume", fmt.Sprintf(
		`{"volume_id":%q,"node_id":%q,"volume_capability":%s}`, v.id, p.nodeID, capability)), "publish_info")
	return v
}

// remove takes the volume back from the node, and deletes it.
func (p *pair) remove(v *volume) {
	p.t.Helper()
	v.on.callAt(v.endpoint, "csi.v0.Controller/ControllerUnpublishVolume", fmt.Sprintf(`{"volume_id":%q,"node_id":%q}`, v.id, p.nodeID))
	v.on.callAt(v.endpoint, "csi.v0.Controller/DeleteVolume", fmt.Sprintf(`{"volume_id":%q}`, v.id))
}

// The calls of the node's side, as method and request.

func (v *volume) stage() (method, request string) {
	return "csi.v0.Node/NodeStageVolume", fmt.Sprintf(
		`{"volume_id":%q,"publish_info":%s,"staging_target_path":"/mnt/%s/staging","volume_capability":%s}`, v.id, v.info, v.name, capability)
}

func (v *volume) publish() (method, request string) {
	return "csi.v0.Node/NodePublishVolume", fmt.Sprintf(
		`{"volume_id":%q,"publish_info":%s,"staging_target_path":"/mnt/%s/staging","target_path":"/mnt/%s/target","volume_capability":%s}`,
		v.id, v.info, v.name, v.name, capability)
}

func (v *volume) unpublish() (method, request string) {
	return "csi.v0.Node/NodeUnpublishVolume", fmt.Sprintf(`{"volume_id":%q,"target_path":"/mnt/%s/target"}`, v.id, v.name)
}

func (v *volume) unstage() (method, request string) {
	return "csi.v0.Node/NodeUnstageVolume", fmt.Sprintf(`{"volume_id":%q,"staging_target_path":"/mnt/%s/staging"}`, v.id, v.name)
}

// up stages and publishes the volume on the node.
func (p *pair) up(v *volume) {
	p.t.Helper()
	p.node.sh("mkdir -p /mnt/" + v.name + "/staging /mnt/" + v.name + "/target")
	p.node.call(v.stage())
	p.node.call(v.publish())
}

func (p *pair) down(v *volume) {
	p.t.Helper()
	p.node.call(v.unpublish())
	p.node.call(v.unstage())
}

// work starts a workload that keeps its file open and acknowledges what is on
// disk; endWork ends it and looks that every acknowledged line is there, in
// order, none twice.
func (p *pair) work(v *volume) {
	p.t.Helper()
	p.node.start("bash", "-c", fmt.Sprintf(
		`rm -f /run/stop /run/%[1]s.*; exec 3>>/mnt/%[1]s/target/log 2>/run/%[1]s.error; i=0; while [ ! -e /run/stop ]; do i=$((i+1)); echo $i >&3 && sync /mnt/%[1]s/target/log && echo $i >/run/%[1]s.new && mv /run/%[1]s.new /run/%[1]s.acked || exit 1; done; touch /run/%[1]s.ended`, v.name))
}

func (p *pair) endWork(volumes ...*volume) {
	p.t.Helper()
	p.node.sh("touch /run/stop")
	for _, v := range volumes {
		p.node.sh(fmt.Sprintf("timeout 120 bash -c 'until [ -e /run/%s.ended ]; do sleep 0.1; done'", v.name))
		acked := acknowledged(p.t, p.node, v)
		p.node.sh(fmt.Sprintf("head -n %d /mnt/%s/target/log | cmp - <(seq %d)", acked, v.name, acked))
	}
}

// exportsOf is what the storage host's kernel and mountd show of the volumes.
func (p *pair) exportsOf(volumes ...*volume) string {
	p.t.Helper()
	var words []string
	for _, v := range volumes {
		words = append(words, "/tank/csi/"+v.name, p.storage.sh("zfs get -H -o value tarn:uuid tank/csi/"+v.name))
	}
	var lines []string
	for line := range strings.Lines(p.storage.sh(exported)) {
		for _, w := range words {
			if strings.Contains(line, w) {
				lines = append(lines, strings.TrimSpace(line))
				break
			}
		}
	}
	if len(lines) < 2*len(volumes) {
		p.t.Fatalf("no exports are seen of %v: %q", words, lines)
	}
	return strings.Join(lines, "\n")
}

// leftNothing expects both machines to be without volumes.
func (p *pair) leftNothing() {
	p.t.Helper()
	p.leftNothingOnStorage()
	if left := p.node.sh("ls /sys/class/iscsi_session /etc/iscsi/nodes 2>/dev/null | grep -v : | grep . || true; grep -E ' /mnt/[a-z]' /proc/mounts || true"); left != "" {
		p.t.Errorf("left on the node:\n%s", left)
	}
}

func (p *pair) leftNothingOnStorage() {
	p.t.Helper()
	if left := p.storage.sh("zfs list -H -o name -t all -r tank/csi | awk 'NR > 1 && $1 != \"tank/csi/.tombstones\" && $1 != \"tank/csi/.incoming\"'; ls /etc/exports.d; ls /sys/kernel/config/target/iscsi | grep iqn || true; cat /var/lib/nfs/etab"); left != "" {
		p.t.Errorf("left on the storage host:\n%s", left)
	}
}

func field(t *testing.T, answer string, path ...string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%s has no %v", answer, path)
		}
		v = m[p]
	}
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// waitReady waits until the daemon at an endpoint, or at the usual one, is ready.
func waitReady(t *testing.T, g *guest, endpoint string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, err := g.tryCall(endpoint, 20*time.Second, "csi.v0.Identity/Probe", "{}")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready: %v", g.name, err)
		}
	}
}

func acknowledged(t *testing.T, g *guest, v *volume) int {
	t.Helper()
	n, err := strconv.Atoi(g.sh("cat /run/" + v.name + ".acked 2>/dev/null || echo 0"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// progress waits until the workload has acknowledged some lines more; an error
// that reached it is a failure at once.
func (p *pair) progress(volumes ...*volume) {
	p.t.Helper()
	const lines = 2
	for _, v := range volumes {
		deadline := time.Now().Add(4 * time.Minute)
		start := acknowledged(p.t, p.node, v)
		for acknowledged(p.t, p.node, v) < start+lines {
			if failed := p.node.sh("cat /run/" + v.name + ".error 2>/dev/null || true"); failed != "" {
				p.t.Fatalf("%s: the workload ended after %d: %s", v.name, start, failed)
			}
			if time.Now().After(deadline) {
				p.t.Fatalf("%s: the workload stands still at %d; the node's kernel:\n%s", v.name, start, p.node.sh("dmesg | tail -n 30"))
			}
		}
	}
}
