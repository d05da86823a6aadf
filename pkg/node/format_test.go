package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestC31ADiskThatCannotBeReadIsNotFormatted(t *testing.T) {
	for _, content := range []string{"", "ext4"} {
		for _, fsType := range []string{"ext4", "xfs"} {
			e := newEnv(t)
			v := e.disk("pvc-c31", ext4())
			v.lun.content, v.lun.readError = content, true
			r := v.stageRequest()
			r.Capability.FSType = fsType
			wantKind(t, e.stage(r), fault.Unavailable)
			if e.count("mkfs") != 0 || v.lun.content != content {
				t.Errorf("the disk was formatted: %v", e)
			}
			e.wantClean()
			v.lun.readError = false
			must(t, e.stage(v.stageRequest())) // as ext4: the old content, or a new filesystem
			if formatted := e.count("mkfs") == 1; formatted != (content == "") {
				t.Errorf("%q was formatted: %v", content, formatted)
			}
		}
	}
}

func TestADiskThatHoldsAnythingElseIsRefused(t *testing.T) {
	for _, content := range []string{"ext4", "xfs", "partial", "LVM2_member", "btrfs"} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		want := "xfs"
		if content == want {
			want = "ext4"
		}
		v.cap.FSType, v.lun.content = want, content
		said := "type " + content
		if content == "partial" {
			said = "unknown data"
		}
		wantKind(t, e.stage(v.stageRequest()), fault.Precondition, said, want)
		if e.count("mkfs") != 0 || v.lun.content != content {
			t.Errorf("the disk was formatted: %v", e)
		}
		e.wantClean()
	}
}

func TestAFilesystemIsCheckedBeforeTheMount(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	v.lun.content = "ext4"
	must(t, e.stage(v.stageRequest()))
	if s := e.String(); !strings.Contains(s, "fsck") || strings.Index(s, "fsck") > strings.Index(s, "mount") {
		t.Errorf("effects: %s", s)
	}
	must(t, e.unstage(v, v.staging))

	v.lun.damaged = true
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "fsck by hand")
	e.wantClean()
}

func TestNothingIsWrittenToAWriteProtectedDisk(t *testing.T) {
	for _, c := range []access.Capability{ext4(), xfs()} {
		e := newEnv(t)
		v := e.disk("pvc-1", c)
		v.lun.protected = true
		v.context[publish.KeyReadOnly] = "true"
		wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "publish it writable once")
		e.wantClean()

		v.lun.content, v.lun.journal, v.lun.fsSize = c.FSType, true, 50
		must(t, e.stage(v.stageRequest()))
		if e.count("fsck")+e.count("mkfs")+e.count("grow") != 0 {
			t.Errorf("tools that write have run: %v", e)
		}
		target := e.path("pods/uid/mount")
		must(t, e.publish(v.publishRequest(target)))
		v.wantPublished(target, true)
	}
}

func TestAReaderNeitherFormatsNorChecks(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", with(ext4(), access.MultiNodeReaderOnly))
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition)
	v.lun.content = "ext4"
	must(t, e.stage(v.stageRequest()))
	if e.count("fsck")+e.count("mkfs") != 0 {
		t.Errorf("tools that write have run: %v", e)
	}
}

func TestARestoredVolumeIsGrownAtStage(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", xfs())
	v.lun.content, v.lun.fsSize = "xfs", 50
	must(t, e.stage(v.stageRequest()))
	if v.lun.fsSize != v.lun.size {
		t.Errorf("the filesystem has size %d of %d", v.lun.fsSize, v.lun.size)
	}
	must(t, e.unstage(v, v.staging))

	// Killed after the mount: the repeat grows what is mounted already.
	v.lun.fsSize = 50
	e.crashAt(crashBefore, "grow", func() error { return e.stage(v.stageRequest()) })
	e.start()
	must(t, e.stage(v.stageRequest()))
	if v.lun.fsSize != v.lun.size || e.count("mount") != 2 {
		t.Errorf("size %d of %d, effects %v", v.lun.fsSize, v.lun.size, e)
	}
}

func TestC40ACloneOfAnXFSVolumeIsMountedBesideIt(t *testing.T) {
	for _, kind := range []access.Capability{xfs(), ext4()} {
		for _, firstClone := range []bool{false, true} {
			e := newEnv(t)
			a, b := e.disk("pvc-a", kind), e.disk("pvc-b", kind)
			must(t, e.stage(a.stageRequest()))
			must(t, e.unstage(a, a.staging))
			b.lun.content, b.lun.uuid, b.lun.fsSize = a.lun.content, a.lun.uuid, a.lun.fsSize
			first, second := a, b
			if firstClone {
				first, second = b, a
			}
			for range 2 {
				must(t, e.stage(first.stageRequest()))
				must(t, e.stage(second.stageRequest()))
				must(t, e.unstage(second, second.staging))
				must(t, e.unstage(first, first.staging))
			}
			e.wantClean()
			if e.count("mkfs") != 1 {
				t.Errorf("the clone was formatted: %v", e)
			}
		}
	}
}

// crashAt kills the daemon at the first side effect of a kind.
func (e *env) crashAt(mode sabotage, what string, call func() error) {
	e.t.Helper()
	e.mode, e.trigger, e.triggerCount = mode, what, 1
	err := call()
	e.trigger = ""
	var p *op.PanicError
	if !e.dead || !errors.As(err, &p) {
		e.t.Fatalf("it was not killed at %s: %v, effects %v", what, err, e)
	}
}

func TestAFormatThatWasCutOffIsRepeatedHere(t *testing.T) {
	cases := map[string]func(e *env, v *vol){
		"killed before mkfs": func(e *env, v *vol) {
			e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
		},
		"killed in mkfs": func(e *env, v *vol) {
			e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
			v.lun.content = "partial"
		},
		"node reset in mkfs": func(e *env, v *vol) {
			e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
			v.lun.content = "partial"
			e.reboot()
		},
		"killed after mkfs": func(e *env, v *vol) {
			e.crashAt(crashAfter, "mkfs", func() error { return e.stage(v.stageRequest()) })
		},
		"killed after the mount": func(e *env, v *vol) {
			e.crashAt(crashAfter, "mount", func() error { return e.stage(v.stageRequest()) })
		},
		"mkfs failed late": func(e *env, v *vol) {
			e.mode, e.trigger, e.triggerCount = failAfter, "mkfs", 1
			if err := e.stage(v.stageRequest()); !errors.Is(err, errSabotage) {
				e.t.Fatal(err)
			}
			e.trigger = ""
		},
		"the deadline came in mkfs": func(e *env, v *vol) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			e.hangMkfs = true
			if err := e.s.Stage(ctx, v.stageRequest()); !errors.Is(err, context.DeadlineExceeded) {
				e.t.Fatal(err)
			}
			must(e.t, e.call(e.s.Operations.Drain))
			e.hangMkfs = false
			if len(e.sessions) != 0 {
				e.t.Error("the failed stage has left a session")
			}
		},
	}
	for name, cut := range cases {
		for _, kind := range []access.Capability{ext4(), xfs()} {
			t.Run(name+"/"+kind.FSType, func(t *testing.T) {
				e := newEnv(t)
				v := e.disk("pvc-1", kind)
				cut(e, v)
				e.start()
				must(t, e.stage(v.stageRequest()))
				if v.lun.content != kind.FSType {
					t.Errorf("the disk holds %q", v.lun.content)
				}
				r, err := e.s.records.stage(v.id, v.staging)
				if err != nil || r.State != "" {
					t.Errorf("after the mount the record says %+v, %v", r, err)
				}
				// It is formatted once and never again.
				v.lun.uuid = "precious"
				must(t, e.unstage(v, v.staging))
				must(t, e.stage(v.stageRequest()))
				if v.lun.uuid != "precious" {
					t.Error("it was formatted twice")
				}
				must(t, e.unstage(v, v.staging))
				e.wantClean()
			})
		}
	}
}

func TestTheRecordSaysFormattingBeforeMkfs(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
	r, err := e.s.records.stage(v.id, v.staging)
	if err != nil || r == nil || r.State != stateFormatting {
		t.Errorf("the record says %+v, %v", r, err)
	}
}

func TestACutOffFormatIsRepeatedNowhereElse(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
	v.lun.content = "partial"
	e.reboot()
	e.loseState() // another node has no record
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "unknown data")
}

func TestAFilesystemThatAnotherNodeMadeSinceIsKept(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
		e.reboot()
		e.start()
		v.lun.uuid, v.lun.damaged = "precious", damaged
		v.lun.content = "xfs"
		wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "type xfs")
		v.lun.content = "ext4"
		if err := e.stage(v.stageRequest()); (err != nil) != damaged {
			t.Errorf("damaged %v: %v", damaged, err)
		}
		if v.lun.uuid != "precious" || e.count("mkfs") != 1 {
			t.Errorf("it was formatted: %v", e)
		}
	}
}

func TestWhatAWorkloadWroteToABlockVolumeIsNoCutOffFormat(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		e.crashAt(crashBefore, "mkfs", func() error { return e.stage(v.stageRequest()) })
		e.start()
		raw := *v
		raw.cap = block()
		if elsewhere {
			raw.staging = e.path("staging/raw")
		}
		must(t, e.stage(raw.stageRequest()))
		v.lun.content = "partial" // as a workload's own data look
		if elsewhere {
			must(t, e.unstage(&raw, raw.staging))
		} else {
			e.reboot()
			e.start()
		}
		wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "unknown data")
		if v.lun.content != "partial" {
			t.Error("the workload's data were formatted")
		}
	}
}

func TestAFormatThatDidNothingIsForgotten(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	e.mode, e.trigger, e.triggerCount = failBefore, "mkfs", 1 // the tool is missing
	if err := e.stage(v.stageRequest()); !errors.Is(err, errSabotage) {
		t.Fatal(err)
	}
	e.trigger = ""
	e.wantClean()
}

func TestAFormatThatIsDoneIsForgottenWhenTheMountFails(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	e.mode, e.trigger, e.triggerCount = failBefore, "mount", 1
	if err := e.stage(v.stageRequest()); !errors.Is(err, errSabotage) {
		t.Fatal(err)
	}
	e.trigger = ""
	e.wantClean()
	must(t, e.stage(v.stageRequest()))
	if e.count("mkfs") != 1 {
		t.Errorf("mkfs ran again: %v", e)
	}
}
