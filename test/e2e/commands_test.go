//go:build guest

package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/harness"
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

// inventory is what `tarn volumes` tells of a volume.
func inventory(t *testing.T, id string) volume.Entry {
	t.Helper()
	var list []volume.Entry
	if err := json.Unmarshal([]byte(tarn(t, "volumes", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("volume %s is not listed", id)
	return volume.Entry{}
}

// The commands of the storage host, beside the daemon that serves.
func TestCommandsOfTheStorageHost(t *testing.T) {
	nfs, block := create(t, kinds[0], "host-nfs"), create(t, kinds[3], "host-block")
	for _, l := range []*live{nfs, block} {
		if e := inventory(t, l.id); e.Export != volume.ExportNone || e.SizeBytes != l.kind.sizeBytes || e.UsedBytes <= 0 || len(e.PublishedTo) > 0 || len(e.Conditions) > 0 {
			t.Errorf("a new volume is %+v", e)
		}
		l.publish()
		if e := inventory(t, l.id); e.Export != volume.ExportOpen || len(e.PublishedTo) != 1 || e.PublishedTo[0] != l.node || len(e.Clients) != 1 || len(e.Conditions) > 0 {
			t.Errorf("a published volume is %+v", e)
		}
	}
	// By hand, behind the driver's back.
	path := nfs.info["share"]
	if out, err := exec.Command("exportfs", "-u", harness.Address+":"+path).CombinedOutput(); err != nil {
		t.Fatalf("exportfs -u: %v: %s", err, out)
	}
	if e := inventory(t, nfs.id); e.Export != volume.ExportMissing || len(e.Conditions) != 1 || e.Conditions[0].Reason != volume.NotExported {
		t.Errorf("a volume whose export was taken away is %+v", e)
	}
	if table := tarn(t, "volumes"); !strings.Contains(table, "missing  INACCESSIBLE NotExported") {
		t.Errorf("the table is\n%s", table)
	}
	for _, l := range []*live{nfs, block} {
		l.publish() // brings it back
		if e := inventory(t, l.id); e.Export != volume.ExportOpen {
			t.Errorf("after another publish the volume is %+v", e)
		}
		l.unpublish()
		l.remove()
	}
}
