//go:build guest

package e2e

import (
	"fmt"
	"strings"
	"testing"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
	"github.com/tarn-csi/tarn/test/harness"
)

// overBudget says which budget was passed, or nothing.
func overBudget(rpc string, direct []string, most int) error {
	if len(direct) > most {
		return fmt.Errorf("%s started %d processes, of at most %d:\n\t%s", rpc, len(direct), most, strings.Join(direct, "\n\t"))
	}
	return nil
}

// Each RPC of the storage host stays within its budget of child processes, by
// what the kernel says of process starts.
func TestProcessBudgets(t *testing.T) {
	watch, err := harness.WatchChildren(host.daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	measure := func(rpc string, most int, call func()) {
		t.Helper()
		if _, _, err := watch.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		call()
		direct, others, err := watch.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d of %d processes: %s (started by them: %d)", rpc, len(direct), most, strings.Join(direct, "; "), len(others))
		if err := overBudget(rpc, direct, most); err != nil {
			t.Error(err)
		}
	}
	budgets := map[string]struct{ create, publish, unpublish, remove int }{
		"nfs":         {2, 3, 3, 2},
		"iscsi block": {2, 2, 2, 2},
	}
	for _, k := range kinds {
		b, ok := budgets[k.name]
		if !ok {
			continue
		}
		var l *live
		measure(k.name+" CreateVolume", b.create, func() { l = create(t, k, "budget-"+strings.Fields(k.name)[0]) })
		measure(k.name+" ControllerPublishVolume", b.publish, l.publish)
		measure(k.name+" ListVolumes", 1, func() {
			must[*csiv0.ListVolumesResponse](t, "ListVolumes")(controller().ListVolumes(deadline(t), &csiv0.ListVolumesRequest{}))
		})
		measure(k.name+" ControllerUnpublishVolume", b.unpublish, l.unpublish)
		measure(k.name+" DeleteVolume", b.remove, l.remove)
	}
}

// The measure sees one process too many.
func TestBudgetSeesAnExtraChild(t *testing.T) {
	watch, err := harness.WatchChildren(host.daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	capacity := func() {
		must[*csiv0.GetCapacityResponse](t, "GetCapacity")(controller().GetCapacity(deadline(t), &csiv0.GetCapacityRequest{}))
	}
	capacity()
	direct, _, err := watch.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(direct) != 1 {
		t.Fatalf("GetCapacity started %q, want one process", direct)
	}
	capacity()
	capacity()
	direct, _, err = watch.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if overBudget("GetCapacity", direct, 1) == nil {
		t.Fatalf("two processes pass for one: %q", direct)
	}
}
