package node

import (
	"context"
	"errors"
	"testing"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestC25UnstageLogsOutOfTheTargetThatWasStaged(t *testing.T) {
	for name, before := range map[string]func(e *env){
		"as it is":        func(*env) {},
		"after a restart": func(e *env) { e.start() },
		"record removed":  func(e *env) { e.loseState() },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			v := e.disk("pvc-c25", ext4())
			must(t, e.stage(v.stageRequest()))
			before(e)
			must(t, e.unstage(v, v.staging))
			e.wantClean()
		})
	}
}

func TestC25ARecordIsKeptUntilTheTeardownHasWorked(t *testing.T) {
	for _, lost := range []bool{false, true} {
		e := newEnv(t)
		v := e.disk("pvc-c25", ext4())
		must(t, e.stage(v.stageRequest()))
		if lost {
			e.loseState()
		}
		e.mode, e.trigger, e.triggerCount = failBefore, "detach", 1
		if err := e.unstage(v, v.staging); !errors.Is(err, errSabotage) {
			t.Fatalf("got %v", err)
		}
		e.trigger = ""
		e.wantLines(v.staging, 0)
		e.start()
		// Nothing is mounted any more; only the record still names the target.
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	}
}

func TestC25ADiskOfAnotherDriverIsNotLoggedOut(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	v.lun.content = "ext4"
	const iqn = "iqn.2026-01.io.github.tarn-csi:other:00000000000000000000000000000000"
	e.luns[iqn] = v.lun
	v.lun.chap = ""
	d, err := initiator{e.kernel}.Attach(context.Background(), attach.Target{
		IQN: iqn, LUN: 1, Serial: v.lun.serial, Portals: []string{"192.0.2.10"}, Initiator: "x"}, nil)
	must(t, err)
	must(t, e.s.disk.mkdir(v.staging))
	must(t, e.Mount(context.Background(), d.Path, v.staging, "ext4", nil, nil))
	wantKind(t, e.unstage(v, v.staging), fault.Precondition, "unmount it by hand")
	e.wantLines(v.staging, 1)
}

func TestWithoutARecordAnotherVolumesMountIsNotTaken(t *testing.T) {
	for _, kind := range []string{"nfs", "ext4"} {
		e := newEnv(t)
		v, other := volumes[kind](e), e.nfs("pvc-other")
		must(t, e.stage(v.stageRequest()))
		wantKind(t, e.unstage(other, v.staging), fault.Precondition, v.id)
		wantKind(t, e.unpublish(other, v.staging), fault.Precondition, v.id)
		e.wantLines(v.staging, 1)
	}
}

func TestWithoutARecordTheOthersRecordsAreNotInTheWay(t *testing.T) {
	for _, kind := range []string{"nfs", "ext4"} {
		e := newEnv(t)
		v := volumes[kind](e)
		for _, other := range []*vol{e.nfs("pvc-o1"), e.disk("pvc-o2", ext4()), e.disk("pvc-o3", block())} {
			must(t, e.stage(other.stageRequest()))
			defer func() {
				must(t, e.unstage(other, other.staging))
			}()
		}
		must(t, e.stage(v.stageRequest()))
		must(t, e.s.records.removeStage(&stageRecord{VolumeID: v.id, StagingPath: v.staging}))
		must(t, e.unstage(v, v.staging))
		e.wantLines(v.staging, 0)
		if e.sessions[v.iqn] != nil {
			t.Error("the session is left")
		}
	}
}

func TestUnstageWhilePublishedChangesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		before := len(e.effects)
		wantKind(t, e.unstage(v, v.staging), fault.Precondition, target)
		if len(e.effects) != before {
			t.Errorf("something was done: %v", e.effects[before:])
		}
		v.wantPublished(target, false)
		// Nor without the records.
		e.loseState()
		if v.isBlock() {
			must(t, e.unstage(v, v.staging)) // nothing shows that it was staged
			v.wantPublished(target, false)
			return
		}
		wantKind(t, e.unstage(v, v.staging), fault.Precondition, target)
		v.wantPublished(target, false)
	})
}

func TestAnUnmountThatIsRefusedOrLies(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		if v.isBlock() {
			return // nothing is mounted at its staging path
		}
		must(t, e.stage(v.stageRequest()))
		e.busy[v.staging] = true
		wantKind(t, e.unstage(v, v.staging), fault.Precondition, "in use")
		e.busy[v.staging], e.lazy = false, true
		wantKind(t, e.unstage(v, v.staging), fault.Unavailable, "still mounted")
		e.lazy = false
		if v.lun != nil && e.sessions[v.iqn] == nil {
			t.Error("it was logged out under the mount")
		}
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestUnstageOfWhatIsNotStaged(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, e.unstage(v, v.staging))
	if len(e.effects) != 0 {
		t.Errorf("side effects: %v", e)
	}
	for _, id := range []string{"../victim", "/etc", "-r", "tank/csi/../victim", "tank/pvc@snap"} {
		must(t, e.s.Unstage(context.Background(), id, v.staging))
		must(t, e.s.Unpublish(context.Background(), id, v.staging))
	}
	e.wantNoPath(v.staging)
}

func TestUnstageForgetsPublicationsThatHaveNoMount(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	e.remove(target)
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

func TestAProtocolThatIsNoLongerEnabled(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", block())
	must(t, e.stage(v.stageRequest()))
	delete(e.s.Attachers, publish.ISCSI)
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "not enabled")
	wantKind(t, e.publish(v.publishRequest(e.path("t"))), fault.Precondition, "not enabled")
	wantKind(t, e.unstage(v, v.staging), fault.Precondition, "not enabled")
}
