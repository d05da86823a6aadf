package volume_test

import (
	"testing"

	"github.com/tarn-csi/tarn/pkg/volume"
)

// What is open although no property says so, as after a rollback of the pool, is
// closed by the calls that promise a closed volume.
func TestStrayExportIsClosedByCalls(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		stray := func() {
			e.publish(to(e.create(request("v", protocol)), nodeA))
			must(t, e.ZFS().Inherit(t.Context(), parent+"/v", "tarn:node.worker-a"))
			e.wantOpened(open(protocol, nodeA))
		}
		stray()
		must(t, e.Unpublish(t.Context(), "tank/v", nodeA))
		e.wantOpened()
		stray()
		must(t, e.Delete(t.Context(), "tank/v"))
		e.wantOpened()
		e.wantDatasets()
	})
}

// A published volume that somebody destroyed by hand leaves no export.
func TestExportOfADestroyedVolumeIsRemoved(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", volume.NFS)), nodeA))
	e.wantOpened(open(volume.NFS, nodeA))
	must(t, e.ZFS().UnmountByHand(parent+"/v"))
	must(t, e.ZFS().Destroy(t.Context(), parent+"/v"))
	must(t, e.Reconcile(t.Context()))
	e.wantOpened()
}
