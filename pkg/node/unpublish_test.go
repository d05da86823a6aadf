package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestC08UnpublishWorksFromWhereverItWasCutOff(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		v.cap.Mode = access.MultiNodeMultiWriter
		if v.lun != nil {
			v.cap.Mode = access.SingleNodeMultiWriter
		}
		target, other := e.path("pods/uid1/mount"), e.path("pods/uid2/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		must(t, e.publish(v.publishRequest(other)))

		e.crashAt(crashAfter, "unmount", func() error { return e.unpublish(v, target) })
		e.start()
		must(t, e.unpublish(v, target))
		e.wantNoPath(target)
		must(t, e.unpublish(v, target))
		must(t, e.publish(v.publishRequest(target)))
		e.remove(target) // by hand
		must(t, os.Remove(target))
		must(t, e.unpublish(v, target))
		must(t, os.RemoveAll(filepath.Dir(target)))
		must(t, e.unpublish(v, target))
		must(t, e.unpublish(v, filepath.Join(e.stateDir, "no", "such", "path")))

		v.wantPublished(other, false)
		if !v.isBlock() {
			e.wantLines(v.staging, 1)
		}
	})
}

func TestC16NothingIsRemovedThroughALiveMount(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		e.lazy = true
		wantKind(t, e.unpublish(v, target), fault.Unavailable, "still mounted")
		e.lazy = false
		e.busy[target] = true
		wantKind(t, e.unpublish(v, target), fault.Precondition, "in use")
		v.wantPublished(target, false)
		if n := e.count("rmdir") + e.count("rmfile"); n != 0 {
			t.Errorf("something was removed: %v", e)
		}
		e.busy[target] = false
		must(t, e.unpublish(v, target))
	})
}

func TestC16OnlyWhatIsEmptyIsRemoved(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		keep := filepath.Join(target, "keep.txt")
		if v.isBlock() {
			keep = target
		}
		must(t, os.WriteFile(keep, []byte("on the root disk, under the mount"), 0o600))
		wantKind(t, e.unpublish(v, target), fault.Precondition, target)
		if _, err := os.Stat(keep); err != nil {
			t.Errorf("it was removed: %v", err)
		}
		e.wantLines(target, 0)
		must(t, os.Remove(keep))
		must(t, e.unpublish(v, target))
		e.wantNoPath(target)
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestUnpublishOfALinkOrAForeignMount(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, os.Symlink("/etc", target))
		wantKind(t, e.unpublish(v, target), fault.Precondition, "symbolic link")
		must(t, os.Remove(target))
		must(t, e.stage(v.stageRequest()))
		for _, staged := range []bool{true, false} {
			e.foreign(target)
			wantKind(t, e.unpublish(v, target), fault.Precondition, "/dev/vdb")
			e.wantLines(target, 1)
			e.remove(target)
			must(t, e.publish(v.publishRequest(target)))
			e.foreign(target) // over ours
			wantKind(t, e.unpublish(v, target), fault.Precondition, "/dev/vdb")
			e.wantLines(target, 2)
			e.remove(target)
			must(t, e.unpublish(v, target))
			if staged {
				must(t, e.unstage(v, v.staging))
				e.foreign(target)
				wantKind(t, e.unpublish(v, target), fault.Precondition, "/dev/vdb")
				e.remove(target)
				must(t, e.stage(v.stageRequest()))
			}
		}
	})
}

func TestUnpublishWithoutAnyRecordLeavesWhatOthersMake(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	target := e.path("pods/uid1/mount")
	i := e.mounts[0]
	i.Source, i.FSType, i.Target, i.Major = "user@host:/home", "fuse.sshfs", target, 0
	e.add(i, false)
	wantKind(t, e.unpublish(v, target), fault.Precondition, "fuse.sshfs")
	e.remove(target)

	// An NFS mount that may be anybody's, while the volume's own is known.
	must(t, e.stage(v.stageRequest()))
	i.Source, i.FSType = "192.0.2.77:/home", "nfs4"
	e.add(i, false)
	wantKind(t, e.unpublish(v, target), fault.Precondition, "192.0.2.77:/home")
	e.wantLines(target, 1)
}

func TestAnotherFilesystemMayHaveTheNumberByNow(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	i, _ := e.top(target)
	e.remove(target)
	i.FSType, i.Source = "tmpfs", "tmpfs"
	e.add(i, false)
	wantKind(t, e.unpublish(v, target), fault.Precondition, "tmpfs")
	e.wantLines(target, 1)
}

func TestUnpublishWithoutItsRecord(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		must(t, e.s.records.removePublish(v.id, target))
		must(t, e.unpublish(v, target))
		e.wantNoPath(target)
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestUnpublishOfADeviceThatIsNoVolume(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", block())
	target := e.path("pods/uid1/dev")
	i := e.mounts[1] // /dev
	i.Root, i.Target = "/sda", target
	e.add(i, false)
	wantKind(t, e.unpublish(v, target), fault.Precondition, "no volume")
	id := e.mounts[len(e.mounts)-1].ID
	e.nodes[id] = number{8, 0}
	wantKind(t, e.unpublish(v, target), fault.Precondition, "no record")
	e.wantLines(target, 1)
}

func TestUnpublishWithoutAnyRecord(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		e.stack(target)
		e.loseState()
		must(t, e.unpublish(v, target))
		e.wantLines(target, 0)
		e.wantNoPath(target)
		if !v.isBlock() {
			e.wantLines(v.staging, 1)
		}
	})
}

func TestUnpublishAfterAnUnstageThatCameFirst(t *testing.T) {
	// NFS mounts are independent; an administrator may have unmounted one.
	e := newEnv(t)
	v := e.nfs("pvc-1")
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	e.remove(v.staging)
	must(t, e.s.records.removeStage(&stageRecord{VolumeID: v.id, StagingPath: v.staging}))
	must(t, e.unpublish(v, target))
	e.wantClean()
}

func TestUnpublishThatCannotMakeTheDeviceWritableIsRepeated(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", block())
	target := e.path("pods/uid1/dev")
	must(t, e.stage(v.stageRequest()))
	r := v.publishRequest(target)
	r.ReadOnly = true
	must(t, e.publish(r))
	e.mode, e.trigger, e.triggerCount = failBefore, "setro", 1
	if err := e.unpublish(v, target); !errors.Is(err, errSabotage) {
		t.Fatalf("got %v", err)
	}
	e.trigger = ""
	// Whether the repeat comes, or the next publication first.
	must(t, e.publish(v.publishRequest(target)))
	v.wantPublished(target, false)
	must(t, e.unpublish(v, target))
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}
