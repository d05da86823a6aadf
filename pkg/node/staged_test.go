package node

import (
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestC34AfterAnOutageAndALostStateDirectory(t *testing.T) {
	for name, trouble := range map[string]func(e *env, v *vol){
		"the filesystem went read-only": func(e *env, v *vol) { e.emergency(v.staging) },
		"the session ended":             func(e *env, v *vol) { e.drop(v.iqn) },
		"the session came back": func(e *env, v *vol) {
			e.drop(v.iqn)
			must(e.t, attachBehind(e, v))
		},
		"nothing": func(*env, *vol) {},
	} {
		for _, lose := range []bool{true, false} {
			if lose && strings.HasPrefix(name, "the session") {
				continue // a disk that is gone tells nothing; see the next test
			}
			t.Run(name, func(t *testing.T) {
				e := newEnv(t)
				v := e.disk("pvc-c34", ext4())
				target := e.path("pods/uid1/mount")
				must(t, e.stage(v.stageRequest()))
				must(t, e.publish(v.publishRequest(target)))
				if lose {
					e.loseState()
				}
				trouble(e, v)
				must(t, e.unpublish(v, target))
				must(t, e.unstage(v, v.staging))
				e.wantLines(v.staging, 0)
				e.wantNoPath(target)
				if !strings.HasSuffix(name, "came back") {
					e.wantClean()
				}
				must(t, e.stage(v.stageRequest()))
				must(t, e.publish(v.publishRequest(target)))
				v.wantPublished(target, false)
			})
		}
	}
}

// attachBehind logs in as an administrator would, behind the driver's back.
func attachBehind(e *env, v *vol) error {
	c, err := publish.Parse(v.context)
	if err != nil {
		return err
	}
	w, err := e.s.newStaging(&StageRequest{VolumeID: v.id, StagingPath: v.staging, Capability: v.cap, PublishContext: c.Map()})
	if err != nil {
		return err
	}
	_, err = initiator{e.kernel}.Attach(e.t.Context(), w.Target, w.credentials)
	return err
}

func TestC34WhatCannotBeToldIsNotGuessed(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-c34", ext4())
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	e.loseState()
	e.drop(v.iqn) // the kernel no longer says whose disk it was
	wantKind(t, e.unpublish(v, target), fault.Precondition, target)
	wantKind(t, e.unstage(v, v.staging), fault.Precondition, v.staging)
	e.wantLines(v.staging, 1)
	e.wantLines(target, 1)
}

func TestC34StageBelievesOnlyAMountThatWorks(t *testing.T) {
	cases := map[string]struct {
		kinds   string
		trouble func(e *env, v *vol)
	}{
		"read-only after an error": {"ext4 xfs", func(e *env, v *vol) { e.emergency(v.staging) }},
		"shut down": {"ext4 xfs", func(e *env, v *vol) {
			i, _ := e.top(v.staging)
			e.supers[number{i.Major, i.Minor}].dead = true
		}},
		"disk gone": {"ext4 xfs", func(e *env, v *vol) { e.drop(v.iqn) }},
		"disk under another number": {"ext4 xfs", func(e *env, v *vol) {
			e.drop(v.iqn)
			must(e.t, attachBehind(e, v))
		}},
		"stacked": {"nfs ext4 xfs", func(e *env, v *vol) { e.stack(v.staging) }},
		"stale": {"nfs", func(e *env, v *vol) {
			i, _ := e.top(v.staging)
			e.supers[number{i.Major, i.Minor}].dead = true
		}},
		"made read-only by hand": {"nfs ext4", func(e *env, v *vol) {
			e.mounts[len(e.mounts)-1].Options = []string{"ro"}
		}},
		"only a part": {"ext4", func(e *env, v *vol) { e.mounts[len(e.mounts)-1].Root = "/sub" }},
		"unmounted":   {"nfs ext4 xfs", func(e *env, v *vol) { e.remove(v.staging) }},
	}
	for name, c := range cases {
		for kind := range strings.FieldsSeq(c.kinds) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				e := newEnv(t)
				v := volumes[kind](e)
				must(t, e.stage(v.stageRequest()))
				c.trouble(e, v)
				must(t, e.stage(v.stageRequest()))
				target := e.path("pods/uid1/mount")
				must(t, e.publish(v.publishRequest(target)))
				v.wantPublished(target, false)
				e.wantLines(v.staging, 1)
				if name != "unmounted" && !strings.Contains(e.log.String(), "mounted anew") {
					t.Errorf("the log does not say that it was healed: %s", e.log.String())
				}
				must(t, e.unpublish(v, target))
				must(t, e.unstage(v, v.staging))
				e.wantClean()
			})
		}
	}
}

func TestADeadFilesystemThatIsStillPublishedIsNotStagedAnew(t *testing.T) {
	for why, drop := range map[string]bool{"read-only": false, "disk is gone": true} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		e.emergency(v.staging)
		if drop {
			e.drop(v.iqn)
		}
		wantKind(t, e.publish(v.publishRequest(e.path("pods/uid2/mount"))), fault.Precondition)
		wantKind(t, e.stage(v.stageRequest()), fault.Precondition, target, why)
		e.wantLines(v.staging, 1)
		must(t, e.unpublish(v, target))
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		v.wantPublished(target, false)
	}
}

func TestReadOnlyNow(t *testing.T) {
	for options, want := range map[string]bool{
		"rw": false, "rw,errors=remount-ro": false, "ro": true, "rw,emergency_ro": true, "rw,shutdown": true,
	} {
		if got := readOnlyNow(mount.Info{SuperOptions: strings.Split(options, ",")}); got != want {
			t.Errorf("%s: %v", options, got)
		}
	}
}

func TestAFailedStageOfAPublishedVolumeLeavesThePublication(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	e.remove(v.staging) // by hand
	v.export.refuse = true
	err := e.stage(v.stageRequest())
	wantKind(t, err, fault.Precondition, "access denied")
	if strings.Contains(err.Error(), "taken back") {
		t.Errorf("nothing was to be taken back: %v", err)
	}
	v.wantPublished(target, false)
	if r, err := e.s.records.stage(v.id, v.staging); r == nil || err != nil {
		t.Errorf("the record is gone: %v", err)
	}
	v.export.refuse = false
	must(t, e.unpublish(v, target))
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

func TestADiskMadeAnewDoesNotCutOffTheOldOne(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	e.remove(v.staging) // by hand
	other := e.disk("pvc-2", ext4())
	other.id, other.staging = v.id, v.staging
	wantKind(t, e.stage(other.stageRequest()), fault.Precondition, target)
	v.wantPublished(target, false)
	must(t, e.unpublish(v, target))
	must(t, e.stage(other.stageRequest()))
	if e.sessions[v.iqn] != nil || e.sessions[other.iqn] == nil {
		t.Error("the old disk is attached still, or the new one is not")
	}
	must(t, e.unstage(other, other.staging))
	e.wantClean()
}

func TestAServerThatDoesNotAnswerIsWaitedFor(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, e.stage(v.stageRequest()))
	v.export.hang = true
	e.s.aliveTimeout = time.Millisecond
	wantKind(t, e.stage(v.stageRequest()), fault.Unavailable, "192.0.2.10")
	e.wantLines(v.staging, 1) // its users may go on when it answers again
	v.export.hang = false
	must(t, e.stage(v.stageRequest()))
}

func TestAMovedPortalIsTakenWhenTheOldOneIsGone(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, e.stage(v.stageRequest()))
	old := v.export
	v.export = &export{}
	e.exports["192.0.2.99:/tank/csi/pvc-1"] = v.export
	v.context[publish.KeyServer] = "192.0.2.99"

	// It answers still: its users are not torn away from it.
	must(t, e.stage(v.stageRequest()))
	target := e.path("pods/uid1/mount")
	must(t, e.publish(v.publishRequest(target)))
	if i, _ := e.top(v.staging); i.Source != "192.0.2.10:/tank/csi/pvc-1" || e.count("mount") != 1 {
		t.Errorf("mounted from %s: %v", i.Source, e)
	}
	must(t, e.unpublish(v, target))

	old.stale = true
	must(t, e.stage(v.stageRequest()))
	if i, _ := e.top(v.staging); i.Source != "192.0.2.99:/tank/csi/pvc-1" {
		t.Errorf("mounted from %s", i.Source)
	}
	must(t, e.publish(v.publishRequest(target)))
	v.wantPublished(target, false)
	must(t, e.unpublish(v, target))
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

func TestAMountWithoutARecordIsTakenOver(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		must(t, e.stage(v.stageRequest()))
		e.loseState()
		must(t, e.stage(v.stageRequest()))
		if !v.isBlock() {
			if n := e.count("mount"); n != 1 {
				t.Errorf("%d mounts: %v", n, e)
			}
		}
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestAMountWithoutARecordMayDiffer(t *testing.T) {
	for word, change := range map[string]func(*StageRequest){
		"fs type":  func(r *StageRequest) { r.Capability.FSType = "xfs" },
		"readonly": func(r *StageRequest) { r.Capability.Mode = access.SingleNodeReaderOnly },
		"mounted":  func(r *StageRequest) { r.Capability = block() },
	} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		must(t, e.stage(v.stageRequest()))
		e.loseState()
		r := v.stageRequest()
		change(&r)
		wantKind(t, e.stage(r), fault.Exists, word)
		e.wantLines(v.staging, 1)
	}
}

func TestAfterARebootAVolumeIsStagedAnew(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		e.reboot()
		e.start()
		// Another disk has the number that the volume's had.
		e.add(e.foreignDisk("/data"), false)
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		v.wantPublished(target, false)
		must(t, e.unpublish(v, target))
		must(t, e.unstage(v, v.staging))
		e.remove("/data")
		e.wantClean()
	})
}

func TestAfterARebootAnUnstageNeedsNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		e.reboot()
		e.start()
		e.add(e.foreignDisk("/data"), false)
		must(t, e.unpublish(v, target))
		must(t, e.unstage(v, v.staging))
		e.wantLines("/data", 1)
		e.remove("/data")
		e.wantClean()
	})
}
