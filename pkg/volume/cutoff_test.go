package volume_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/volume"
)

var errKilled = errors.New("killed")

// maxSteps is more than any call takes.
const maxSteps = 200

// A daemon that is killed after any of its calls of ZFS, or after any of its
// operations on configfs, leaves what the next one completes: the repeated call
// answers as one that was never cut off, and nothing is left in the end.
func TestCutOffAtEachStep(t *testing.T) {
	life := []struct {
		name string
		call func(e *env, protocol string) (any, error)
	}{
		{"create", func(e *env, protocol string) (any, error) { return e.Create(e.t.Context(), ownRequest(protocol)) }},
		{"publish", func(e *env, _ string) (any, error) {
			return e.Publish(e.t.Context(), to(volume.Volume{ID: "tank/v"}, nodeA))
		}},
		{"expand", func(e *env, _ string) (any, error) {
			bytes, _, err := e.Expand(e.t.Context(), larger("tank/v", 3*gib, 3*gib))
			return bytes, err
		}},
		{"unpublish", func(e *env, _ string) (any, error) { return nil, e.Unpublish(e.t.Context(), "tank/v", nodeA) }},
		{"delete", func(e *env, _ string) (any, error) { return nil, e.Delete(e.t.Context(), "tank/v") }},
	}
	cuts := map[string]func(e *env, k int){
		"zfs":      func(e *env, k int) { e.Pool.CutAfter(k, errKilled) },
		"configfs": func(e *env, k int) { e.Writes.CutAfter(k) },
	}
	for name, cut := range cuts {
		for n, step := range life {
			eachProtocol(t, func(t *testing.T, e *env, protocol string) {
				k := 0
				for ; k < maxSteps; k++ {
					for _, before := range life[:n] {
						_, err := before.call(e, protocol)
						must(t, err)
					}
					cut(e, k)
					_, err := step.call(e, protocol)
					whole := err == nil
					e.Pool.Heal()
					e.Writes.Heal()
					e.start()
					got, err := step.call(e, protocol)
					if err != nil {
						t.Fatalf("%s again, cut off after %d calls of %s: %v", step.name, k, name, err)
					}
					again, err := step.call(e, protocol)
					must(t, err)
					if diff := cmp.Diff(got, again); diff != "" {
						t.Errorf("cut off after %d calls of %s: answers differ\n%s", k, name, diff)
					}
					e.wantAfter(step.name, protocol, fmt.Sprintf("cut off after %d calls of %s", k, name))
					must(t, e.unpublishIfThere())
					must(t, e.Delete(t.Context(), "tank/v"))
					e.wantDatasets()
					e.wantOpened()
					if whole {
						break
					}
				}
				if k == maxSteps {
					t.Errorf("%s takes more than %d calls of %s", step.name, maxSteps, name)
				}
				t.Logf("%s over %s: %d calls of %s", step.name, protocol, k, name)
			})
		}
	}
}

// unpublishIfThere closes the volume if it is there.
func (e *env) unpublishIfThere() error {
	err := e.Unpublish(e.t.Context(), "tank/v", "")
	if len(e.datasets()) == 0 {
		return nil
	}
	return err
}

// ownRequest is for a thick volume, and gives the root of an NFS volume a mode,
// which is set last.
func ownRequest(protocol string) volume.CreateRequest {
	r := with(request("v", protocol), "thin", "false")
	if protocol == volume.NFS {
		return with(r, "mode", "2770")
	}
	return r
}

// wantAfter checks what a step of a life leads to.
func (e *env) wantAfter(step, protocol, when string) {
	e.t.Helper()
	e.t.Log(when)
	switch step {
	case "delete":
		e.wantDatasets()
		e.wantOpened()
	case "publish", "expand":
		e.wantDatasets("v")
		e.wantOpened(open(protocol, nodeA))
	default:
		e.wantDatasets("v")
		e.wantOpened()
	}
	if step == "expand" {
		e.wantSize(protocol, 3*gib)
		e.wantReserved(protocol, 3*gib)
	}
	if step == "create" && protocol == volume.NFS && e.Pool.RootOf(parent+"/v").Mode != 0o2770 {
		e.t.Errorf("%s: the root is %+v", when, e.Pool.RootOf(parent+"/v"))
	}
}
