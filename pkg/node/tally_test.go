package node

import (
	"context"
	"testing"

	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestTheTallyTellsWhatASweepSaw(t *testing.T) {
	e := newEnv(t)
	e.orphan("lost")
	v := e.disk("kept", block())
	must(t, e.stage(v.stageRequest()))
	e.sweep()
	e.s.countStaged()
	got := e.s.Tally()
	if got.Sessions != 2 || got.Orphans != 1 || got.Removed != 1 || got.Staged[publish.ISCSI] != 1 || got.Staged[publish.NFS] != 0 {
		t.Errorf("got %+v", got)
	}
	e.sweep()
	if got := e.s.Tally(); got.Sessions != 1 || got.Orphans != 0 || got.Removed != 1 {
		t.Errorf("after the next sweep: %+v", got)
	}
}

func TestRunCountsSweeps(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it sweeps at once, and ends then
	e.s.Run(ctx)
	if got := e.s.Tally(); got.Sweeps != 1 || got.Ended.IsZero() {
		t.Errorf("got %+v", got)
	}
	if err := e.s.Stuck(); err != nil {
		t.Error(err)
	}
}
