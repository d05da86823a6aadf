package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tarn-csi/tarn/pkg/op"
)

// TestKilledAtEveryStep kills the daemon before and after every single side
// effect of a volume's life, starts it again, with or without a reset of the
// node between, and repeats the call that was cut off. It must converge, and
// after the unstage nothing may be left.
func TestKilledAtEveryStep(t *testing.T) {
	for kind := range volumes {
		for _, readOnly := range []bool{false, true} {
			if readOnly && kind != "block" && kind != "ext4" {
				continue // the same steps
			}
			for _, mode := range []sabotage{crashBefore, crashAfter} {
				for _, reboot := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/readonly=%v/mode=%d/reboot=%v", kind, readOnly, mode, reboot), func(t *testing.T) {
						t.Parallel()
						for k := 1; killedAt(t, kind, readOnly, mode, reboot, k); k++ {
							if k > 60 {
								t.Fatal("it does not end")
							}
						}
					})
				}
			}
		}
	}
}

// killedAt lives one life with a kill at step k, and reports whether there was
// such a step.
func killedAt(t *testing.T, kind string, readOnly bool, mode sabotage, reboot bool, k int) bool {
	e := newEnv(t)
	v := volumes[kind](e)
	target := e.path("pods/uid1/mount")
	publish := v.publishRequest(target)
	publish.ReadOnly = readOnly
	e.mode, e.at = mode, k
	killed := false
	try := func(call func() error) {
		t.Helper()
		err := call()
		if e.dead {
			var p *op.PanicError
			if !errors.As(err, &p) {
				t.Fatalf("step %d: got %v", k, err)
			}
			killed = true
			if reboot {
				e.reboot()
			}
			e.start()
			err = call()
		}
		if err != nil {
			t.Fatalf("step %d, effects %v: %v", k, e, err)
		}
	}
	// After a reset of the node the orchestrator begins at the stage.
	try(func() error { return e.stage(v.stageRequest()) })
	try(func() error {
		if killed && reboot {
			must(t, e.stage(v.stageRequest()))
		}
		return e.publish(publish)
	})
	v.wantPublished(target, readOnly)
	if !v.isBlock() {
		e.wantLines(v.staging, 1)
	}
	try(func() error { return e.unpublish(v, target) })
	e.wantLines(target, 0)
	e.wantNoPath(target)
	try(func() error { return e.unstage(v, v.staging) })
	e.wantClean()
	if v.lun != nil && !v.isBlock() && v.lun.content == "partial" {
		t.Errorf("step %d: the disk is left half formatted", k)
	}
	return killed
}

// TestKilledAndNotRepeated leaves the call that was cut off, and undoes
// everything at once, as an orchestrator does whose pod has been deleted.
func TestKilledAndNotRepeated(t *testing.T) {
	for kind := range volumes {
		for _, mode := range []sabotage{crashBefore, crashAfter, failBefore, failAfter} {
			t.Run(fmt.Sprintf("%s/mode=%d", kind, mode), func(t *testing.T) {
				t.Parallel()
				for k, hit := 1, true; hit; k++ {
					e := newEnv(t)
					v := volumes[kind](e)
					target := e.path("pods/uid1/mount")
					e.mode, e.at = mode, k
					err := e.stage(v.stageRequest())
					if err == nil {
						err = e.publish(v.publishRequest(target))
					}
					hit = err != nil
					e.start()
					must(t, e.unpublish(v, target))
					must(t, e.unstage(v, v.staging))
					e.wantNoPath(target)
					e.wantClean()
				}
			})
		}
	}
}
