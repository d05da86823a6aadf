package volume_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/volume"
)

// step is one call in the life of volumes and snapshots.
type step struct {
	name string
	call func(e *env, protocol string) (any, error)
}

// cutOffAtEachStep runs a life of calls again and again, killing the daemon
// after each of its calls of ZFS in turn. The repeated call answers as one that
// was never cut off, the life goes on, and nothing is left in the end.
func cutOffAtEachStep(t *testing.T, life []step) {
	t.Helper()
	for n, at := range life {
		t.Run(at.name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, e *env, protocol string) {
				k := 0
				for whole := false; !whole; k++ {
					if k == maxSteps {
						t.Fatalf("it takes more than %d calls of zfs", maxSteps)
					}
					for _, before := range life[:n] {
						_, err := before.call(e, protocol)
						must(t, err)
					}
					e.Pool.CutAfter(k, errKilled)
					_, err := at.call(e, protocol)
					whole = err == nil
					e.Pool.Heal()
					e.start()
					got, err := at.call(e, protocol)
					if err != nil {
						t.Fatalf("again, cut off after %d calls of zfs: %v", k, err)
					}
					again, err := at.call(e, protocol)
					must(t, err)
					if diff := cmp.Diff(got, again); diff != "" {
						t.Errorf("cut off after %d calls of zfs: answers differ\n%s", k, diff)
					}
					for _, after := range life[n+1:] {
						if _, err := after.call(e, protocol); err != nil {
							t.Fatalf("%s after a cut after %d calls of zfs: %v", after.name, k, err)
						}
					}
					must(t, e.Reconcile(t.Context()))
					e.wantEmpty()
				}
				t.Logf("over %s: %d calls of zfs", protocol, k-1)
			})
		})
	}
}

// wantEmpty checks that nothing is left, but the places where things were.
func (e *env) wantEmpty() {
	e.t.Helper()
	for _, name := range e.datasets() {
		if name != ".incoming" {
			e.t.Errorf("%s is left", name)
		}
	}
	e.wantOpened()
	e.wantSnapshots()
}

func TestSnapshotsCutOffAtEachStep(t *testing.T) {
	del := func(id string) func(*env, string) (any, error) {
		return func(e *env, _ string) (any, error) { return nil, e.DeleteSnapshot(e.t.Context(), id) }
	}
	cutOffAtEachStep(t, []step{
		{"create volume", func(e *env, protocol string) (any, error) { return e.Create(e.t.Context(), request("v", protocol)) }},
		{"create snapshot", func(e *env, _ string) (any, error) { return e.CreateSnapshot(e.t.Context(), "s", "tank/v", nil) }},
		{"create another", func(e *env, _ string) (any, error) { return e.CreateSnapshot(e.t.Context(), "t", "tank/v", nil) }},
		{"delete a snapshot", del("tank/v@t")},
		{"delete the volume", func(e *env, _ string) (any, error) { return nil, e.Delete(e.t.Context(), "tank/v") }},
		{"list", func(e *env, _ string) (any, error) {
			list, _, err := e.ListSnapshots(e.t.Context(), volume.SnapshotFilter{}, 0, "")
			return list, err
		}},
		{"delete the last snapshot", del("tank/v@s")},
	})
}
