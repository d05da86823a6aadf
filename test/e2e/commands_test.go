//go:build guest

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/machine"
)

// tarn runs a command of the storage host's beside the daemon.
func tarn(t *testing.T, args ...string) string {
	t.Helper()
	out, err := host.Daemon.Command(deadline(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inventory is what `tarn volumes` tells, by volume id.
func inventory(t *testing.T) map[string]volume.Entry {
	t.Helper()
	var list []volume.Entry
	if err := json.Unmarshal([]byte(tarn(t, "volumes", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]volume.Entry{}
	for _, e := range list {
		found[e.ID] = e
	}
	return found
}

// The commands of the storage host, beside the daemon that serves.
func TestCommandsOfTheStorageHost(t *testing.T) {
	nfs, block := create(t, kinds[0], "host-nfs"), create(t, kinds[3], "host-block")
	both := []*live{nfs, block}
	list := inventory(t)
	for _, l := range both {
		if e := list[l.id]; e.Export != volume.ExportNone || e.SizeBytes != l.kind.sizeBytes || e.UsedBytes <= 0 || len(e.PublishedTo) > 0 || len(e.Conditions) > 0 {
			t.Errorf("a new volume is %+v", e)
		}
		l.publish()
	}
	list = inventory(t)
	for _, l := range both {
		if e := list[l.id]; e.Export != volume.ExportOpen || len(e.PublishedTo) != 1 || e.PublishedTo[0] != l.node || len(e.Clients) != 1 || len(e.Conditions) > 0 {
			t.Errorf("a published volume is %+v", e)
		}
	}
	objectsOf(t, both)
	// By hand, behind the driver's back.
	machine.Sh(t, "exportfs", "-u", harness.Address+":"+nfs.info["share"])
	list = inventory(t)
	if e := list[nfs.id]; e.Export != volume.ExportMissing || len(e.Conditions) != 1 || e.Conditions[0].Reason != volume.NotExported {
		t.Errorf("a volume whose export was taken away is %+v", e)
	}
	if e := list[block.id]; e.Export != volume.ExportOpen {
		t.Errorf("the other volume is %+v", e)
	}
	if table := tarn(t, "volumes"); !strings.Contains(table, "missing  INACCESSIBLE NotExported") {
		t.Errorf("the table is\n%s", table)
	}
	unpublishByHand(t, both)
	orphansByHand(t, both)
	adoptByHand(t)
}

// objectsOf finds volumes among the PersistentVolumes of the pool. What other
// tests left of deleted volumes is told, and nothing else.
func objectsOf(t *testing.T, list []*live) {
	t.Helper()
	out, err := host.Daemon.Command(deadline(t), "volumes", "--pv-yaml", "--storage-class", "nfs=a")
	if err != nil && !strings.Contains(err.Error(), "left out: ") {
		t.Error(err)
	}
	for _, l := range list {
		if !strings.Contains(out, "volumeHandle: "+l.id+"\n") {
			t.Errorf("%s is not among\n%s", l.id, out)
		}
	}
}

// unpublishByHand ends publications by the command, which the daemon does.
func unpublishByHand(t *testing.T, both []*live) {
	t.Helper()
	id := both[0].id
	for _, c := range []struct{ volume, node, says string }{{id, "node-2", "published to " + both[0].node}, {id + "x", "node-1", "does not exist"}} {
		if out, err := host.Daemon.Command(deadline(t), "unpublish", c.volume, c.node); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("unpublish %s %s: %v %s", c.volume, c.node, err, out)
		}
	}
	for _, l := range both {
		if out := tarn(t, "unpublish", l.id, "node-1"); !strings.Contains(out, l.node) {
			t.Errorf("unpublish says %q", out)
		}
	}
	list := inventory(t)
	for _, l := range both {
		if e := list[l.id]; e.Export != volume.ExportNone || len(e.PublishedTo) > 0 {
			t.Errorf("after unpublish the volume is %+v", e)
		}
	}
}

// orphans are what `tarn orphans` lists, as "kind removal" by name.
func orphans(t *testing.T, args ...string) map[string]string {
	t.Helper()
	var list []volume.Orphan
	if err := json.Unmarshal([]byte(tarn(t, append([]string{"orphans", "--json"}, args...)...)), &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, o := range list {
		found[o.Name] = o.Kind + " " + o.Removal
	}
	return found
}

// orphansByHand takes from two published volumes what makes them volumes. Their
// exports are of nobody then, and go; the datasets, and what is another tool's,
// stay. The volumes are gone at the end.
func orphansByHand(t *testing.T, both []*live) {
	t.Helper()
	const foreign = "/sys/kernel/config/target/iscsi/iqn.2003-01.org.example:theirs"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(foreign)
	want := map[string]string{"iqn.2003-01.org.example:theirs": "target foreign"}
	uuids := map[string]string{}
	for _, l := range both {
		l.publish()
	}
	list := inventory(t)
	for _, l := range both {
		e := list[l.id]
		uuids[e.Dataset] = e.UUID
		for _, property := range []string{"tarn:name", "tarn:uuid"} {
			machine.Sh(t, "zfs", "inherit", property, e.Dataset)
		}
		want[e.Dataset] = "dataset foreign"
	}
	machine.Sh(t, "zfs", "snapshot", host.Pool.Parent()+"/host-nfs@backup")
	before := orphans(t)
	strays := 0
	for name, is := range before {
		if strings.HasSuffix(is, " yes") {
			strays++
			delete(before, name)
		}
	}
	if strays != 2 {
		t.Errorf("%d exports are of no volume; also %v", strays, before)
	}
	// The snapshots of a dataset have its name.
	delete(want, host.Pool.Parent()+"/host-nfs")
	for name, is := range want {
		if before[name] != is {
			t.Errorf("%s is %q, want %q", name, before[name], is)
		}
	}
	if out, err := host.Daemon.Command(deadline(t), "orphans", "--remove"); err == nil || !strings.Contains(err.Error(), "no terminal") {
		t.Errorf("without a terminal: %v %s", err, out)
	}
	orphans(t, "--remove", "--yes")
	for name, is := range orphans(t) {
		if before[name] != is {
			t.Errorf("left or new: %s %s", name, is)
		}
		delete(before, name)
	}
	if len(before) > 0 {
		t.Errorf("also removed: %v", before)
	}
	for dataset, uuid := range uuids {
		for _, pattern := range []string{"/etc/exports.d/*" + uuid + "*", "/sys/kernel/config/target/iscsi/*" + uuid, "/sys/kernel/config/target/core/*/*" + uuid} {
			if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		}
		machine.Eventually(t, dataset+" is free", func() bool { return machine.Run("zfs", "destroy", "-r", dataset) == nil })
	}
}

// adoptByHand makes volumes of a filesystem and a zvol that a person made, while
// the daemon runs, and uses them.
func adoptByHand(t *testing.T) {
	t.Helper()
	fs, zvol := host.Pool.Name+"/old", host.Pool.Name+"/old-zvol"
	machine.Sh(t, "zfs", "create", "-o", "refquota=64M", fs)
	dir := strings.TrimSpace(machine.Sh(t, "zfs", "get", "-H", "-o", "value", "mountpoint", fs))
	keep(t, dir)
	if out, err := host.Daemon.Command(deadline(t), "adopt", fs, "--protocol", "nfs"); err == nil || !strings.Contains(err.Error(), "mounted at "+dir) {
		t.Errorf("a mounted filesystem was adopted: %v %s", err, out)
	}
	machine.Sh(t, "zfs", "unmount", fs)
	machine.Sh(t, "zfs", "create", "-s", "-V", "64M", zvol)
	device := machine.Device(t, zvol)
	machine.Sh(t, "mkfs.ext4", "-q", device)
	dir = t.TempDir()
	machine.Sh(t, "mount", device, dir)
	keep(t, dir)
	if out, err := host.Daemon.Command(deadline(t), "adopt", zvol, "--protocol", "iscsi"); err == nil || !strings.Contains(err.Error(), "a mount at "+dir) {
		t.Errorf("a mounted zvol was adopted: %v %s", err, out)
	}
	machine.Sh(t, "umount", dir)
	for i, dataset := range []string{fs, zvol} {
		k := kinds[i]
		name := "host-adopted-" + k.word()
		out := tarn(t, "adopt", dataset, "--protocol", k.protocol(), "--name", name)
		id := "p/" + name
		if out != fmt.Sprintf("volume: %s\nsize: %d\n", id, 64<<20) {
			t.Fatalf("adopt says %q", out)
		}
		l := newLive(t, k, name, id, map[string]string{"protocol": k.protocol(), "fsType": k.fsType})
		l.up()
		if e := inventory(t)[id]; e.Export != volume.ExportOpen || len(e.Conditions) > 0 {
			t.Errorf("the adopted volume is %+v", e)
		}
		if b, err := os.ReadFile(filepath.Join(l.target(), "kept")); err != nil || string(b) != "kept" {
			t.Errorf("%s: %q, %v", k.name, b, err)
		}
		if err := os.WriteFile(l.data(), []byte("new"), 0o600); err != nil {
			t.Error(err)
		}
		l.down()
	}
}

// keep writes the file that an adopted volume is to have.
func keep(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
}
