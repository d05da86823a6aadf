package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/test/machine"
)

func (e *env) sweep() {
	e.t.Helper()
	must(e.t, e.call(e.s.Sweep))
}

// orphan stages a volume as a block device and loses its record.
func (e *env) orphan(name string) *vol {
	e.t.Helper()
	v := e.disk(name, block())
	must(e.t, e.stage(v.stageRequest()))
	e.loseState()
	return v
}

func TestSweepEndsAnOrphan(t *testing.T) {
	e := newEnv(t)
	v := e.orphan("pvc-1")
	e.sweep()
	e.wantClean()
	if n := strings.Count(e.log.String(), "removed what was left"); n != 1 || !strings.Contains(e.log.String(), v.iqn) {
		t.Errorf("told %d times: %s", n, e.log.String())
	}
	e.sweep()
	if n := strings.Count(e.log.String(), "removed what was left"); n != 1 {
		t.Errorf("told again: %s", e.log.String())
	}
	// The volume can be used as if nothing had been.
	must(t, e.stage(v.stageRequest()))
}

func TestSweepRemovesAnOrphanRecord(t *testing.T) {
	e := newEnv(t)
	e.orphan("pvc-1")
	e.reboot() // sessions end, open-iscsi's records stay
	e.start()
	e.sweep()
	e.wantClean()
}

func TestSweepLeavesWhatIsStaged(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		must(t, e.stage(v.stageRequest()))
		target := e.path("pod/volume")
		must(t, e.publish(v.publishRequest(target)))
		before := len(e.effects)
		e.sweep()
		e.start()
		e.sweep()
		if len(e.effects) != before || e.log.Len() != 0 && strings.Contains(e.log.String(), "removed") {
			t.Errorf("the sweep did something: %s, %s", e.effects[before:], e.log.String())
		}
		must(t, e.unpublish(v, target))
		e.sweep()
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

// A record whose disk is gone is still its volume's: only an unstage ends it.
func TestSweepLeavesAVolumeThatWasStagedBeforeAReboot(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest()))
	e.reboot()
	e.start()
	e.sweep()
	if len(e.records) != 1 {
		t.Error("the node record of a staged volume was removed")
	}
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

// The private directory was emptied under volumes that are in use, C34.
func TestSweepLeavesWhatIsInUseWithoutARecord(t *testing.T) {
	for name, use := range map[string]func(e *env, v *vol){
		"mounted": func(*env, *vol) {},
		"open":    func(e *env, v *vol) { e.remove(v.staging); e.sessions[v.iqn].opened = true },
	} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		must(t, e.stage(v.stageRequest()))
		e.loseState()
		use(e, v)
		mounts := len(e.mounts)
		for range 3 {
			e.sweep()
		}
		if e.sessions[v.iqn] == nil || e.records[v.iqn] == "" || len(e.mounts) != mounts {
			t.Errorf("%s: it was taken away: %v", name, e.effects)
		}
		if n := strings.Count(e.log.String(), " stays"); n != 1 {
			t.Errorf("%s: told %d times: %s", name, n, e.log.String())
		}
		e.log.Reset()
	}
}

func TestSweepTouchesNothingForeign(t *testing.T) {
	e := newEnv(t)
	uuid := strings.Repeat("a", 32)
	for _, iqn := range []string{
		"iqn.2005-10.org.example:storage",
		"iqn.2026-01.io.github.tarn-csi:other:" + uuid,
		"iqn.2026-01.io.github.tarn-csi:main:x:" + uuid,
		"iqn.2026-01.io.github.tarn-csi:main:data",
		"iqn.2027-01.io.github.tarn-csi:main:" + uuid,
	} {
		e.nextMinor += 16
		e.sessions[iqn] = &device{number: number{8, e.nextMinor}, lun: &lun{number: 1}, initiator: naming(t).Initiator(nodeName)}
		e.records[iqn] = naming(t).Initiator(nodeName)
	}
	e.sweep()
	if len(e.effects) > 0 || e.log.Len() > 0 {
		t.Errorf("%v, %s", e.effects, e.log.String())
	}
	// Another node of this instance on the same kernel.
	iqn := naming(t).Target(uuid)
	e.nextMinor += 16
	e.sessions[iqn] = &device{number: number{8, e.nextMinor}, lun: &lun{number: 1}, initiator: naming(t).Initiator("worker-2")}
	e.records[iqn] = naming(t).Initiator("worker-2")
	e.sweep()
	e.sweep()
	if e.sessions[iqn] == nil || e.records[iqn] == "" || strings.Count(e.log.String(), " stays") != 1 {
		t.Errorf("another node's session: %v, %s", e.effects, e.log.String())
	}
}

// A stage that is just attaching has its record and its lock; the sweep listed
// the session before it had either.
func TestSweepDoesNotRaceWithAStage(t *testing.T) {
	e := newEnv(t)
	v := e.orphan("pvc-1")
	v.lun.hang = true
	staged := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { staged <- e.s.Stage(ctx, v.stageRequest()) }()
	machine.Eventually(t, "a stage", func() bool { return e.s.Operations.Held("target " + v.iqn) })
	// What the sweep saw before the stage began.
	list, err := initiator{e.kernel}.Attachments(ctx)
	must(t, err)
	e.s.sweepOne(ctx, orphan{list[0], initiator{e.kernel}})
	e.mu.Lock()
	if e.sessions[v.iqn] == nil {
		t.Error("the session was taken from under a stage")
	}
	e.mu.Unlock()
	if strings.Contains(e.log.String(), "stays") {
		t.Errorf("a stage is no leftover: %s", e.log.String())
	}
	cancel()
	if err := <-staged; err == nil {
		t.Error("the stage did not hang")
	}
	machine.Eventually(t, "its end", func() bool { return !e.s.Operations.Held("target " + v.iqn) })
	v.lun.hang = false
	must(t, e.stage(v.stageRequest()))
	e.s.sweepOne(context.Background(), orphan{list[0], initiator{e.kernel}})
	if e.sessions[v.iqn] == nil {
		t.Error("the record that was written since the listing does not count")
	}
}

// A logout that does not end holds up neither the sweep for long, nor the next
// orphan, nor a stage of another volume.
func TestSweepIsBounded(t *testing.T) {
	e := newEnv(t)
	var stuck []*vol
	for _, name := range []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4", "pvc-5"} {
		v := e.disk(name, block())
		must(t, e.stage(v.stageRequest()))
		e.sessions[v.iqn].stuck = true
		stuck = append(stuck, v)
	}
	fine := e.disk("pvc-fine", block())
	must(t, e.stage(fine.stageRequest()))
	e.loseState()
	e.s.orphanTimeout = 50 * time.Millisecond
	begin := time.Now()
	e.sweep()
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("the sweep took %s", d)
	}
	if e.sessions[fine.iqn] != nil {
		t.Error("an orphan was held up by others")
	}
	if n := len(e.s.Operations.Running()); n != len(stuck) {
		t.Errorf("%d operations keep their targets, want %d", n, len(stuck))
	}
	e.s.orphanTimeout = 10 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	swept := make(chan error, 1)
	go func() { swept <- e.s.Sweep(ctx) }()
	must(t, e.stage(fine.stageRequest()))
	begin = time.Now()
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	held := slices.IndexFunc(stuck, func(v *vol) bool { return e.s.Operations.Held("target " + v.iqn) })
	if err := e.s.Stage(short, stuck[held].stageRequest()); err == nil || time.Since(begin) > time.Second {
		t.Errorf("a stage beside its sweep: %v after %s", err, time.Since(begin))
	}
	cancel() // the end of the daemon
	if err := <-swept; err != nil {
		t.Error(err)
	}
	close(e.revived)
	machine.Eventually(t, "the end of what was stuck", func() bool { return len(e.s.Operations.Running()) == 0 })
}

// Without the records nothing is an orphan.
func TestSweepNeedsEveryRecord(t *testing.T) {
	e := newEnv(t)
	v := e.orphan("pvc-1")
	must(t, os.WriteFile(filepath.Join(e.stateDir, stagePrefix+"damaged"+recordSuffix), []byte("{"), 0o600))
	if err := e.call(e.s.Sweep); err == nil || fault.Kind(err) != nil {
		t.Errorf("a damaged record: %v", err)
	}
	if e.sessions[v.iqn] == nil {
		t.Error("a session was ended without knowing whose it is")
	}
}

func TestRunSweepsAtStartAndOnATimer(t *testing.T) {
	e := newEnv(t)
	e.orphan("pvc-1")
	e.s.Rest = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { e.s.Run(ctx); close(ended) }()
	gone := func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.sessions)+len(e.records) == 0 }
	machine.Eventually(t, "the end of an orphan", gone)
	e.mu.Lock()
	e.records[naming(t).Target(strings.Repeat("b", 32))] = naming(t).Initiator(nodeName)
	e.mu.Unlock()
	machine.Eventually(t, "the end of an orphan", gone)
	cancel()
	<-ended
}
