package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestC32OneMountLineHoweverOften(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		for n := range 5 {
			r := v.publishRequest(target)
			// Pod information differs at each call and counts for nothing.
			r.VolumeContext = map[string]string{"csi.storage.k8s.io/pod.name": string(rune('a' + n))}
			must(t, e.publish(r))
		}
		v.wantPublished(target, false)
		if n := e.count("bind"); n != 1 {
			t.Errorf("%d binds: %v", n, e)
		}
		r := v.publishRequest(target)
		r.ReadOnly = true
		before := len(e.effects)
		wantKind(t, e.publish(r), fault.Exists, "readonly")
		r = v.publishRequest(target)
		r.Capability.Mode = access.SingleNodeSingleWriter
		wantKind(t, e.publish(r), fault.Exists, "access mode")
		if len(e.effects) != before {
			t.Errorf("something was changed: %v", e.effects[before:])
		}
		v.wantPublished(target, false)
		must(t, e.unpublish(v, target))
		e.wantLines(target, 0)
		e.wantNoPath(target)
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestC32WhatIsAtTheTargetIsChecked(t *testing.T) {
	cases := map[string]func(e *env, v *vol, target string){
		"stacked": func(e *env, v *vol, target string) { e.stack(target) },
		"half read-only": func(e *env, v *vol, target string) {
			e.mounts[len(e.mounts)-1].Options = []string{"ro"}
		},
		"unmounted": func(e *env, v *vol, target string) { e.remove(target) },
		"removed": func(e *env, v *vol, target string) {
			e.remove(target)
			must(e.t, os.Remove(target))
		},
		"dead": func(e *env, v *vol, target string) {
			if v.lun == nil {
				return
			}
			e.remove(v.staging)
			e.drop(v.iqn)
			must(e.t, e.stage(v.stageRequest()))
		},
	}
	for name, change := range cases {
		eachKind(t, func(t *testing.T, e *env, v *vol) {
			if name == "half read-only" && v.isBlock() {
				return // a bind of a device node has no such half
			}
			target := e.path("pods/uid1/mount")
			must(t, e.stage(v.stageRequest()))
			must(t, e.publish(v.publishRequest(target)))
			change(e, v, target)
			must(t, e.publish(v.publishRequest(target)))
			v.wantPublished(target, false)
			must(t, e.unpublish(v, target))
			must(t, e.unstage(v, v.staging))
			e.wantClean()
		})
	}
}

func TestC32WithoutItsRecordAPublicationIsJudgedByTheMountTable(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		e.loseState()
		if !v.isBlock() { // what a device allows, no mount shows
			r := v.publishRequest(target)
			r.ReadOnly = true
			wantKind(t, e.publish(r), fault.Exists, "readonly")
			if v.lun != nil {
				r.Capability = block()
				wantKind(t, e.publish(r), fault.Precondition, "staged as mount")
			}
		}
		must(t, e.publish(v.publishRequest(target)))
		v.wantPublished(target, false)
		if n := e.count("bind"); n != 1 {
			t.Errorf("%d binds: %v", n, e)
		}
		r := v.publishRequest(target)
		r.ReadOnly = true
		wantKind(t, e.publish(r), fault.Exists, "readonly") // now there is a record
		must(t, e.unpublish(v, target))
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestC49OnlyTheLiveMountIsBound(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		refused := func(what string) {
			t.Helper()
			err := e.publish(v.publishRequest(target))
			if !errors.Is(err, fault.Precondition) {
				t.Fatalf("%s: got %v", what, err)
			}
			e.wantLines(target, 0)
			e.wantNoPath(target)
		}
		refused("never staged, staging path missing")
		must(t, os.MkdirAll(v.staging, 0o755))
		refused("never staged, a plain directory")
		if !v.isBlock() {
			e.foreign(v.staging)
			refused("something else is mounted")
			e.remove(v.staging)
		}
		must(t, e.stage(v.stageRequest()))
		e.reboot()
		e.start()
		refused("after a reboot")
		must(t, e.stage(v.stageRequest()))
		if v.lun != nil {
			e.drop(v.iqn)
			refused("its disk is gone")
			must(t, attachBehind(e, v))
			if !v.isBlock() {
				refused("its disk is another")
			}
			must(t, e.unstage(v, v.staging))
			must(t, e.stage(v.stageRequest()))
			e.luns[v.iqn].serial = "another"
			refused("the disk says another serial")
			e.luns[v.iqn].serial = v.context[publish.KeySerial]
		}
		must(t, e.publish(v.publishRequest(target)))
		v.wantPublished(target, false)
	})
}

func TestC49AStagingMountThatVanishesJustBeforeTheBind(t *testing.T) {
	for _, kind := range []string{"nfs", "ext4"} {
		e := newEnv(t)
		v := volumes[kind](e)
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		e.vanish = v.staging
		wantKind(t, e.publish(v.publishRequest(target)), fault.Precondition)
		e.wantLines(target, 0)
		e.wantNoPath(target)
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	}
}

func TestAFilesystemThatWentReadOnlyIsNotPublished(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest()))
	e.emergency(v.staging)
	target := e.path("pods/uid1/mount")
	wantKind(t, e.publish(v.publishRequest(target)), fault.Precondition, "read-only")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
}

func TestSecondPublishOnANode(t *testing.T) {
	modes := map[access.Mode]error{
		access.SingleNodeWriter:       fault.Precondition,
		access.SingleNodeReaderOnly:   fault.Precondition,
		access.SingleNodeSingleWriter: fault.Precondition,
		access.SingleNodeMultiWriter:  nil,
		access.MultiNodeReaderOnly:    nil,
		access.MultiNodeSingleWriter:  nil,
		access.MultiNodeMultiWriter:   nil,
	}
	for mode, want := range modes {
		e := newEnv(t)
		v := e.nfs("pvc-1")
		v.cap.Mode = mode
		must(t, e.stage(v.stageRequest()))
		first, second := e.path("pods/uid1/mount"), e.path("pods/uid2/mount")
		must(t, e.publish(v.publishRequest(first)))
		must(t, e.publish(v.publishRequest(first))) // same T, same P
		other := v.publishRequest(second)
		if err := e.publish(other); !errors.Is(err, want) {
			t.Errorf("%s, other T, same P: %v", mode, err)
		}
		other.TargetPath, other.ReadOnly = e.path("pods/uid3/mount"), true
		if err := e.publish(other); !errors.Is(err, want) {
			t.Errorf("%s, other T, other P: %v", mode, err)
		}
		if want != nil {
			wantKind(t, e.publish(other), want, first)
			e.wantNoPath(second)
		}
		same := v.publishRequest(first)
		same.ReadOnly = true
		if err := e.publish(same); !mode.ReaderOnly() && !errors.Is(err, fault.Exists) {
			t.Errorf("%s, same T, other P: %v", mode, err)
		}
		// A mode that allows no second one is not overruled by the second's.
		if want != nil {
			other.Capability.Mode = access.SingleNodeMultiWriter
			wantKind(t, e.publish(other), fault.Precondition)
		}
		must(t, e.unpublish(v, first))
		must(t, e.publish(v.publishRequest(second)))
	}
}

func TestKubeletsOwnBindsAreNoPublications(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		first, second := e.path("pods/uid1/mount"), e.path("pods/uid2/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(first)))
		i, _ := e.top(first)
		node, isNode := e.nodes[i.ID]
		i.Target = e.path("volumeDevices/dev/uid1")
		id := e.add(i, false)
		if isNode {
			e.nodes[id] = node
		}
		must(t, e.unpublish(v, first))
		must(t, e.publish(v.publishRequest(second)))
		v.wantPublished(second, false)
		must(t, e.unpublish(v, second))
		wantKind(t, e.unstage(v, v.staging), fault.Precondition, i.Target)
	})
}

func TestATargetThatIsTaken(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		must(t, e.stage(v.stageRequest()))
		target := e.path("pods/uid1/mount")
		e.foreign(target)
		wantKind(t, e.publish(v.publishRequest(target)), fault.Exists, "/dev/vdb")
		e.wantLines(target, 1)

		other := e.nfs("pvc-other")
		must(t, e.stage(other.stageRequest()))
		taken := e.path("pods/uid2/mount")
		must(t, e.publish(other.publishRequest(taken)))
		wantKind(t, e.publish(v.publishRequest(taken)), fault.Exists, other.id)
		wantKind(t, e.unpublish(v, taken), fault.Precondition, taken)
		other.wantPublished(taken, false)
	})
}

func TestStagingAndTargetPathsAreNotMixedUp(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		before := len(e.effects)
		wantKind(t, e.unpublish(v, v.staging), fault.Precondition, "staging path")
		first := v.staging
		v.staging = target
		wantKind(t, e.stage(v.stageRequest()), fault.Exists)
		if len(e.effects) != before {
			t.Errorf("something was done: %v", e.effects[before:])
		}
		v.staging = e.path("staging/second")
		must(t, e.stage(v.stageRequest()))
		wantKind(t, e.publish(v.publishRequest(first)), fault.Exists, "staging path")
	})
}

func TestAPublicationThatWasBoundAnewByHandIsNotedAnew(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	target := e.path("pods/uid1/mount")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	e.remove(target)
	e.remove(v.staging)
	e.drop(v.iqn)
	must(t, e.stage(v.stageRequest()))
	must(t, e.Bind(t.Context(), v.staging, target, false))
	must(t, e.publish(v.publishRequest(target)))
	wantKind(t, e.publish(v.publishRequest(e.path("pods/uid2/mount"))), fault.Precondition, target)
}

func TestTheTargetPathMayExistOrNot(t *testing.T) {
	type made func(path string) error
	dir := func(path string) error { return os.MkdirAll(path, 0o755) }
	file := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	fullDir := func(path string) error {
		return errors.Join(dir(path), os.WriteFile(filepath.Join(path, "keep.txt"), nil, 0o600))
	}
	fullFile := func(path string) error { return os.WriteFile(path, []byte("keep"), 0o600) }
	link := func(path string) error { return os.Symlink("/etc", path) }
	noParent := func(path string) error { return os.Remove(filepath.Dir(path)) }
	socket := func(path string) error { return os.Symlink(path+"-nowhere", path) }
	cases := map[string]struct {
		prepare           made
		refuseFS, refuseB bool
	}{
		"missing":        {func(string) error { return nil }, false, false},
		"no parent":      {noParent, false, false},
		"directory":      {dir, false, false},
		"file":           {file, true, false},
		"full directory": {fullDir, true, true},
		"full file":      {fullFile, true, true},
		"link":           {link, true, true},
		"dangling link":  {socket, true, true},
	}
	for name, c := range cases {
		eachKind(t, func(t *testing.T, e *env, v *vol) {
			target := e.path("pods/" + name + "/mount")
			must(t, e.stage(v.stageRequest()))
			must(t, c.prepare(target))
			err := e.publish(v.publishRequest(target))
			refuse := c.refuseFS
			if v.isBlock() {
				refuse = c.refuseB
			}
			if refuse {
				wantKind(t, err, fault.Precondition, target)
				if _, err := os.Lstat(target); err != nil {
					t.Errorf("%s: what was there is gone: %v", name, err)
				}
				e.wantLines(target, 0)
				must(t, e.unstage(v, v.staging))
				e.wantClean()
				return
			}
			must(t, err)
			v.wantPublished(target, false)
			must(t, e.unpublish(v, target))
			e.wantNoPath(target)
			if _, err := os.Lstat(filepath.Dir(target)); err != nil {
				t.Errorf("%s: the parent is gone: %v", name, err)
			}
		})
	}
}

func TestPublishAsStaged(t *testing.T) {
	e := newEnv(t)
	v, b := e.disk("pvc-1", ext4()), e.disk("pvc-2", block())
	must(t, e.stage(v.stageRequest()))
	must(t, e.stage(b.stageRequest()))
	for _, c := range []struct {
		v    *vol
		as   access.Capability
		word string
	}{{v, block(), "staged as mount"}, {b, ext4(), "staged as block"}, {v, xfs(), "fs type ext4"}} {
		r := c.v.publishRequest(e.path("t"))
		r.Capability = c.as
		wantKind(t, e.publish(r), fault.Precondition, c.word)
	}
	n := e.nfs("pvc-3")
	must(t, e.stage(n.stageRequest()))
	r := n.publishRequest(e.path("t"))
	r.Capability.FSType = "ext4"
	wantKind(t, e.publish(r), fault.Precondition, "fs type nfs")
	r.Capability.FSType = "nfs4"
	must(t, e.publish(r))
}

func TestReadOnlyPublications(t *testing.T) {
	for _, kind := range []string{"nfs", "ext4", "xfs"} {
		e := newEnv(t)
		v := volumes[kind](e)
		v.cap.Mode = access.SingleNodeMultiWriter
		must(t, e.stage(v.stageRequest()))
		ro, rw := e.path("pods/uid1/mount"), e.path("pods/uid2/mount")
		r := v.publishRequest(ro)
		r.ReadOnly = true
		must(t, e.publish(r))
		must(t, e.publish(r))
		must(t, e.publish(v.publishRequest(rw)))
		v.wantPublished(ro, true)
		v.wantPublished(rw, false)
	}
}

func TestABlockVolumeIsHonestlyReadOnly(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", with(block(), access.SingleNodeMultiWriter))
	must(t, e.stage(v.stageRequest()))
	one, two, three := e.path("pods/uid1/dev"), e.path("pods/uid2/dev"), e.path("pods/uid3/dev")
	readOnly := func(target string) PublishRequest {
		r := v.publishRequest(target)
		r.ReadOnly = true
		return r
	}
	must(t, e.publish(readOnly(one)))
	v.wantPublished(one, true)
	must(t, e.publish(readOnly(two)))
	wantKind(t, e.publish(v.publishRequest(three)), fault.Precondition, "readonly")
	e.wantNoPath(three)
	must(t, e.unpublish(v, one))
	v.wantPublished(two, true)
	must(t, e.unpublish(v, two))
	must(t, e.publish(v.publishRequest(three)))
	v.wantPublished(three, false)
	wantKind(t, e.publish(readOnly(one)), fault.Precondition, three)
	v.wantPublished(three, false)
	must(t, e.unpublish(v, three))

	// Lost records: the device is made read-only again, whatever it was.
	must(t, e.publish(readOnly(one)))
	e.loseState()
	e.sessions[v.iqn].ro = false
	must(t, e.publish(readOnly(one)))
	v.wantPublished(one, true)
	must(t, e.unpublish(v, one))
	if e.sessions[v.iqn].ro {
		t.Error("the device is still read-only")
	}

	// The device has gone: there is nothing to undo.
	must(t, e.publish(readOnly(one)))
	e.drop(v.iqn)
	must(t, e.unpublish(v, one))
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

func TestAWriteProtectedBlockVolumeIsLeftToItsTarget(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", with(block(), access.MultiNodeReaderOnly))
	v.context[publish.KeyReadOnly] = "true"
	v.lun.protected = true
	must(t, e.stage(v.stageRequest()))
	target := e.path("pods/uid1/dev")
	must(t, e.publish(v.publishRequest(target)))
	must(t, e.unpublish(v, target))
	if n := e.count("setro"); n != 0 {
		t.Errorf("the device was touched: %v", e)
	}
}

func TestAFailedPublishTakesBackWhatItBegan(t *testing.T) {
	kinds := map[string]bool{"nfs": false, "ext4": true, "block": true}
	for kind, readOnly := range kinds {
		for _, mode := range []sabotage{failBefore, failAfter} {
			for k := 1; ; k++ {
				e := newEnv(t)
				v := volumes[kind](e)
				target := e.path("pods/uid1/mount")
				must(t, e.stage(v.stageRequest()))
				e.effects, e.mode, e.at = nil, mode, k
				r := v.publishRequest(target)
				r.ReadOnly = readOnly
				err := e.publish(r)
				e.mode = none
				if err == nil {
					break
				}
				if !errors.Is(err, errSabotage) {
					t.Fatalf("step %d: %v", k, err)
				}
				e.wantLines(target, 0)
				if d := e.sessions[v.iqn]; d != nil && d.ro {
					t.Errorf("step %d: the device is left read-only", k)
				}
				if !slices.Contains(e.effects, "mkdir") && !slices.Contains(e.effects, "mkfile") || mode == failBefore {
					e.wantNoPath(target)
				}
				must(t, e.unstage(v, v.staging))
				e.wantClean()
			}
		}
	}
}
