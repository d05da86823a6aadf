package volume_test

import (
	"context"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/publish"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// round reconciles and returns what that has seen.
func (e *env) round() volume.Round {
	e.t.Helper()
	if err := e.Reconcile(e.t.Context()); err != nil {
		e.t.Logf("reconcile: %v", err)
	}
	return e.Last()
}

func find(t *testing.T, r volume.Round, id string) volume.Seen {
	t.Helper()
	for _, v := range r.Pools[0].Volumes {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("%s is not in %+v", id, r.Pools[0].Volumes)
	return volume.Seen{}
}

func TestARoundTellsWhatItSaw(t *testing.T) {
	e := newEnv(t)
	e.create(request("idle", volume.ISCSI))
	n, i := e.create(request("n", volume.NFS)), e.create(request("i", volume.ISCSI))
	e.publish(to(n, nodeA))
	e.publish(to(i, nodeB))
	_, err := e.CreateSnapshot(t.Context(), "s", n.ID, nil)
	must(t, err)
	r := e.round()
	if r.Err != nil || r.Ended.IsZero() || r.Rounds != 2 || r.Failed != 0 || len(r.Pools) != 1 {
		t.Fatalf("the round is %+v", r)
	}
	p := r.Pools[0]
	if p.Name != "tank" || p.State != "ONLINE" || p.Err != nil || p.AvailableBytes <= 0 || len(p.Volumes) != 3 || p.Snapshots[volume.NFS] != 1 || p.Deleted != 0 {
		t.Errorf("the pool is %+v", p)
	}
	for _, id := range []string{n.ID, i.ID} {
		if v := find(t, r, id); !v.Exported() || v.SizeBytes != gib || len(v.Conditions) != 0 || v.Trouble != "" {
			t.Errorf("%s is %+v", id, v)
		}
	}
	if v := find(t, r, "tank/idle"); v.Published() || v.Exported() {
		t.Errorf("the idle one is %+v", v)
	}
	// What was as it should be was not repaired.
	if len(r.Repairs) != 0 {
		t.Errorf("repairs: %v", r.Repairs)
	}

	must(t, e.Delete(t.Context(), "tank/idle"))
	must(t, e.Unpublish(t.Context(), n.ID, nodeA))
	must(t, e.Delete(t.Context(), n.ID))
	if p := e.round().Pools[0]; p.Deleted != 1 || p.Snapshots[volume.NFS] != 1 || len(p.Volumes) != 1 {
		t.Errorf("after a deletion the pool is %+v", p)
	}
}

// Who is logged in is counted while the target knows the session.
func TestARoundCountsSessions(t *testing.T) {
	e := newEnv(t, func(c *volume.Config) { c.Pools[0].CHAP = chap.None })
	v := e.create(request("v", volume.ISCSI))
	info := e.publish(to(v, nodeA))
	session := e.Configfs.Login(info[publish.KeyIQN], e.Naming.Initiator("worker-a"), "", "")
	if session == nil {
		t.Fatal("the initiator is refused")
	}
	if seen := find(t, e.round(), v.ID); seen.Sessions != 1 {
		t.Errorf("it is %+v", seen)
	}
	must(t, e.Unpublish(t.Context(), v.ID, nodeA))
	if seen := find(t, e.round(), v.ID); seen.Sessions != 0 || session.Alive() {
		t.Errorf("after it was closed it is %+v", seen)
	}
}

func TestARoundCountsWhatItPutRight(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.publish(to(v, nodeA))
	must(t, e.LoseExports(true))
	if r := e.round(); r.Repairs[volume.RepairedExport] != 1 || !find(t, r, v.ID).Exported() {
		t.Errorf("the round is %+v", r)
	}
	if r := e.round(); r.Repairs[volume.RepairedExport] != 1 {
		t.Errorf("counted again: %v", r.Repairs)
	}
	must(t, e.ZFS().Inherit(t.Context(), parent+"/v", "tarn:node.worker-a"))
	e.start() // nothing remembers that it was published
	if r := e.Last(); r.Repairs[volume.RemovedExport] != 1 || r.Unwanted[volume.NFS] != 0 {
		t.Errorf("the round is %+v", r)
	}
}

// A volume whose export cannot be made is wanted and not seen, and says why.
func TestARoundTellsWhatItCouldNotExport(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.publish(to(v, nodeA))
	must(t, e.ZFS().Set(t.Context(), parent+"/v", zfs.Setting{Name: "tarn:node.worker-a", Value: `{"node":"worker-a@nowhere","mode":1,"type":1,"readonly":false}`}))
	if seen := find(t, e.round(), v.ID); !seen.Published() || seen.Exported() || seen.Trouble == "" || len(seen.Conditions) == 0 {
		t.Errorf("it is %+v", seen)
	}
}

func TestOfAPoolThatIsAwayTheLastRoundIsKnown(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.publish(to(v, nodeA))
	e.round()
	e.Pool.Suspend()
	r := e.round()
	p := r.Pools[0]
	if r.Err == nil || r.Failed != 1 || p.Err == nil || p.State != "SUSPENDED" || len(p.Volumes) != 1 {
		t.Fatalf("the round is %+v", r)
	}
	if c := p.Volumes[0].Conditions; len(c) != 1 || c[0].Reason != volume.PoolSuspended || p.Condition == nil || *p.Condition != c[0] {
		t.Errorf("the conditions are %+v, the pool's is %+v", c, p.Condition)
	}
	e.Pool.Resume()
	if p := e.round().Pools[0]; p.Err != nil || p.Condition != nil || len(p.Volumes[0].Conditions) != 0 {
		t.Errorf("when it goes on it is %+v", p)
	}
}

// A pool that is only slow is usable, and its volumes are those of the round
// before, with nothing said against them.
func TestOfAPoolThatIsSlowTheLastRoundIsKnown(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.publish(to(v, nodeA))
	slow := &slowly{ZFS: e.cfg.ZFS, takes: 400 * time.Millisecond}
	slow.verb.Store("")
	e.cfg.ZFS = slow
	e.cfg.Operation = 300 * time.Millisecond
	e.start()
	e.round()
	slow.verb.Store("children")
	p := e.round().Pools[0]
	if p.Err != nil || p.Unlisted == nil || len(p.Volumes) != 1 || len(p.Volumes[0].Conditions) != 0 {
		t.Errorf("the pool is %+v", p)
	}
	// What was wrong while it was away is over when it is only slow.
	e.Pool.Suspend()
	e.round()
	e.Pool.Resume()
	if p := e.round().Pools[0]; p.Unlisted == nil || len(p.Volumes) != 1 || len(p.Volumes[0].Conditions) != 0 {
		t.Errorf("after it was away it is %+v", p)
	}
}

// What a call does during a round is no difference that the round has found, and
// nothing that it put right.
func TestCallsDuringARoundAreNoFindings(t *testing.T) {
	e := newEnv(t)
	opens, closes := e.create(request("opens", volume.NFS)), e.create(request("closes", volume.NFS))
	e.publish(to(closes, nodeA))
	entered, gate, ended := make(chan struct{}, 8), make(chan struct{}), make(chan struct{})
	e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "snapshots", gate: gate, entered: entered}
	must(t, e.Close())
	s, err := volume.New(withExporters(e))
	must(t, err)
	defer s.Close()
	go func() { _ = s.Reconcile(context.Background()); close(ended) }()
	<-entered // the volumes are listed
	_, err = s.Publish(t.Context(), to(opens, nodeA))
	must(t, err)
	must(t, s.Unpublish(t.Context(), closes.ID, nodeA))
	close(gate)
	<-ended
	r := s.Last()
	if o := find(t, r, opens.ID); o.Export != volume.ExportNone || len(o.Conditions) != 0 {
		t.Errorf("what was opened is %+v", o)
	}
	if c := find(t, r, closes.ID); !c.Exported() || len(c.Conditions) != 0 {
		t.Errorf("what was closed is %+v", c)
	}
	if len(r.Repairs) != 0 {
		t.Errorf("repairs: %v", r.Repairs)
	}
	must(t, s.Reconcile(t.Context()))
	r = s.Last()
	if o, c := find(t, r, opens.ID), find(t, r, closes.ID); !o.Exported() || c.Published() || c.Export != volume.ExportNone || len(r.Repairs) != 0 {
		t.Errorf("the next round saw %+v and %+v, and put right %v", o, c, r.Repairs)
	}
}

// Who looks does not wait for a round that hangs.
func TestLastDoesNotWaitForAPool(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.round()
	entered, gate, ended := make(chan struct{}, 8), make(chan struct{}), make(chan struct{})
	e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "get " + parent, gate: gate, entered: entered}
	must(t, e.Close())
	s, err := volume.New(withExporters(e))
	must(t, err)
	defer s.Close()
	go func() { _ = s.Reconcile(context.Background()); close(ended) }()
	<-entered
	if r := s.Last(); !r.Ended.IsZero() || len(s.Operations()) == 0 || s.Stuck() != nil {
		t.Errorf("the round is %+v, running %v", r, s.Operations())
	}
	close(gate)
	<-ended
	if r := s.Last(); len(r.Pools[0].Volumes) != 1 || r.Pools[0].Volumes[0].ID != v.ID {
		t.Errorf("the round is %+v", r)
	}
}

func withExporters(e *env) volume.Config {
	cfg := e.cfg
	cfg.Exporters = e.Exporters(storage.Quiet())
	return cfg
}

// keeps is an exporter that removes nothing.
type keeps struct{ export.Exporter }

func (keeps) Remove(context.Context, string) error { return fault.New(fault.Unavailable, "it is busy") }

// The exports that cannot be removed are counted, round after round.
func TestUnwantedExportsAreCounted(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", volume.NFS)), nodeA))
	must(t, e.ZFS().Inherit(t.Context(), parent+"/v", "tarn:node.worker-a"))
	exporters := e.Exporters(storage.Quiet())
	e.cfg.Exporters = map[string]export.Exporter{volume.NFS: keeps{exporters[volume.NFS]}}
	e.start()
	for range 2 {
		if r := e.round(); r.Unwanted[volume.NFS] != 1 || r.Repairs[volume.RemovedExport] != 0 {
			t.Errorf("the round is %+v", r)
		}
	}
}

// A published volume whose dataset goes away is told of until it is back; one that
// was deleted is not.
func TestLostVolumesAreTold(t *testing.T) {
	e := newEnv(t)
	gone, deleted := e.create(request("gone", volume.NFS)), e.create(request("deleted", volume.ISCSI))
	e.publish(to(gone, nodeA))
	e.publish(to(deleted, nodeA))
	if r := e.round(); len(r.Lost) != 0 {
		t.Fatalf("lost: %+v", r.Lost)
	}
	must(t, e.Unpublish(t.Context(), deleted.ID, nodeA))
	must(t, e.Delete(t.Context(), deleted.ID))
	must(t, e.ZFS().Rename(t.Context(), parent+"/gone", "tank/aside"))
	for range 2 {
		if r := e.round(); len(r.Lost) != 1 || r.Lost[0].ID != gone.ID || r.Lost[0].UUID == "" {
			t.Errorf("lost: %+v", r.Lost)
		}
	}
	must(t, e.ZFS().Rename(t.Context(), "tank/aside", parent+"/gone"))
	if r := e.round(); len(r.Lost) != 0 {
		t.Errorf("when it is back: %+v", r.Lost)
	}
}
