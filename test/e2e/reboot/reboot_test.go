//go:build vm

package reboot

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// storage boots the storage host as an operating system would that keeps /etc
// and /var: pool, then mounts, then exports, then the NFS server, then Tarn.
const storageUp = `
mkdir -p /persist
blkid /dev/vdb >/dev/null || mkfs.ext4 -q /dev/vdb
mount /dev/vdb /persist
mkdir -p /persist/exports.d /persist/tarn /etc/exports.d /var/lib/tarn
[ -d /persist/nfs ] || cp -a /var/lib/nfs /persist/nfs
mount --bind /persist/exports.d /etc/exports.d
mount --bind /persist/nfs /var/lib/nfs
mount --bind /persist/tarn /var/lib/tarn
hack/vm/services start zfs
if ! zpool import -d /dev/disk/by-id -o cachefile=none tank 2>/dev/null && ! zpool import -f -d /dev/disk/by-id -o cachefile=none tank 2>/dev/null; then
  zpool create -o cachefile=none -O mountpoint=/tank tank /dev/vda
  zfs create tank/csi
fi
zfs mount -a
hack/vm/services start nfs lio
bin/tarn key --create >/dev/null
`

const storageAddress, nodeAddress = "192.0.2.1", "192.0.2.2"

// exported is what the kernel and mountd show of the exports, without what
// changes from boot to boot.
const exported = `
cd /sys/kernel/config/target
for f in $(find . -name vpd_unit_serial -o -name userid -o -name password -o -name userid_mutual -o -name password_mutual \
    -o -name udev_path -o -name authentication -o -name write_protect | sort); do echo "$f $(cat $f)"; done
find iscsi -type l -o -type d | grep -E '/(acls|np|lun)/' | grep -v statistics | sort
sort /var/lib/nfs/etab
`

// volume is a published volume.
type volume struct{ name, id, capability, info string }

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

// A storage host is rebooted while a node writes: without any call the exports
// come back as they were, and the node's open files go on.
func TestRebootWithVolumesPublished(t *testing.T) {
	dir := t.TempDir()
	net := filepath.Join(dir, "net")
	if err := os.Mkdir(net, 0o700); err != nil {
		t.Fatal(err)
	}
	storage := newGuest(t, "storage", "--disk", filepath.Join(dir, "pool.img")+":2G", "--disk", filepath.Join(dir, "persist.img")+":256M", "--net", net+":1")
	node := newGuest(t, "node", "--net", net+":2")
	controller := []string{"bin/tarn", "serve", "--mode", "controller", "--pool", "tank=tank/csi", "--address", storageAddress, "--log-level", "debug"}

	storage.boot()
	storage.sh(storageUp)
	storage.start(controller...)
	node.boot()
	key := storage.sh("bin/tarn key node-1")
	node.sh("hack/vm/services start iscsi; modprobe nfs; mkdir -p /var/lib/tarn; umask 077; echo " + key + " >/var/lib/tarn/node.key; ping -c 1 -W 10 " + storageAddress)
	node.start("bin/tarn", "serve", "--mode", "node", "--node-name", "node-1", "--address", storageAddress, "--log-level", "debug")

	nodeID := field(t, node.call("csi.v0.Node/NodeGetId", "{}"), "node_id")
	if want := "node-1@" + nodeAddress; nodeID != want {
		t.Fatalf("the node says it is %s, want %s", nodeID, want)
	}
	waitReady(t, storage)
	var volumes []*volume
	for _, protocol := range []string{"nfs", "iscsi"} {
		v := &volume{name: "r-" + protocol, capability: `{"mount":{},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}`}
		answer := storage.call("csi.v0.Controller/CreateVolume", fmt.Sprintf(
			`{"name":%q,"capacity_range":{"required_bytes":"67108864"},"volume_capabilities":[%s],"parameters":{"protocol":%q}}`, v.name, v.capability, protocol))
		v.id = field(t, answer, "volume", "id")
		answer = storage.call("csi.v0.Controller/ControllerPublishVolume", fmt.Sprintf(
			`{"volume_id":%q,"node_id":%q,"volume_capability":%s}`, v.id, nodeID, v.capability))
		v.info = field(t, answer, "publish_info")
		node.sh("mkdir -p /mnt/" + v.name + "/staging /mnt/" + v.name + "/target")
		node.call("csi.v0.Node/NodeStageVolume", fmt.Sprintf(
			`{"volume_id":%q,"publish_info":%s,"staging_target_path":"/mnt/%s/staging","volume_capability":%s}`, v.id, v.info, v.name, v.capability))
		node.call("csi.v0.Node/NodePublishVolume", fmt.Sprintf(
			`{"volume_id":%q,"publish_info":%s,"staging_target_path":"/mnt/%s/staging","target_path":"/mnt/%s/target","volume_capability":%s}`,
			v.id, v.info, v.name, v.name, v.capability))
		// A workload that keeps its file open and acknowledges what is on disk.
		node.start("bash", "-c", fmt.Sprintf(
			`exec 3>>/mnt/%[1]s/target/log 2>/run/%[1]s.error; i=0; while [ ! -e /run/stop ]; do i=$((i+1)); echo $i >&3 && sync /mnt/%[1]s/target/log && echo $i >/run/%[1]s.new && mv /run/%[1]s.new /run/%[1]s.acked || exit 1; done`, v.name))
		volumes = append(volumes, v)
	}
	for _, v := range volumes {
		progress(t, node, v, 2)
	}
	before := storage.sh(exported)

	storage.stop() // with everything published
	storage.boot()
	storage.sh(storageUp)
	storage.start(controller...)
	waitReady(t, storage)

	if after := storage.sh(exported); after != before {
		t.Errorf("the exports are not what they were\nbefore:\n%s\nafter:\n%s", before, after)
	}
	for _, v := range volumes {
		progress(t, node, v, 2)
	}
	node.sh("touch /run/stop")
	for _, v := range volumes {
		acked := acknowledged(t, node, v)
		// Every acknowledged line is there, in order, none twice.
		node.sh(fmt.Sprintf("head -n %d /mnt/%s/target/log | cmp - <(seq %d)", acked, v.name, acked))
		node.call("csi.v0.Node/NodeUnpublishVolume", fmt.Sprintf(`{"volume_id":%q,"target_path":"/mnt/%s/target"}`, v.id, v.name))
		node.call("csi.v0.Node/NodeUnstageVolume", fmt.Sprintf(`{"volume_id":%q,"staging_target_path":"/mnt/%s/staging"}`, v.id, v.name))
		storage.call("csi.v0.Controller/ControllerUnpublishVolume", fmt.Sprintf(`{"volume_id":%q,"node_id":%q}`, v.id, nodeID))
		storage.call("csi.v0.Controller/DeleteVolume", fmt.Sprintf(`{"volume_id":%q}`, v.id))
	}
	if left := storage.sh("zfs list -H -o name -r tank/csi | awk 'NR > 1 && $1 != \"tank/csi/.tombstones\"'; ls /etc/exports.d; ls /sys/kernel/config/target/iscsi | grep iqn || true; cat /var/lib/nfs/etab"); left != "" {
		t.Errorf("left on the storage host:\n%s", left)
	}
	if left := node.sh("ls /sys/class/iscsi_session /etc/iscsi/nodes 2>/dev/null | grep -v : | grep . || true; grep ' /mnt/r-' /proc/mounts || true"); left != "" {
		t.Errorf("left on the node:\n%s", left)
	}
}

func waitReady(t *testing.T, g *guest) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, err := g.try("bin/csi-call --timeout 20s csi.v0.Identity/Probe")
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
func progress(t *testing.T, g *guest, v *volume, lines int) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	start := acknowledged(t, g, v)
	for acknowledged(t, g, v) < start+lines {
		if failed := g.sh("cat /run/" + v.name + ".error 2>/dev/null || true"); failed != "" {
			t.Fatalf("%s: the workload ended after %d: %s", v.name, start, failed)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the workload stands still at %d; the node's kernel:\n%s", v.name, start, g.sh("dmesg | tail -n 30"))
		}
	}
}
