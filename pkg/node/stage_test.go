package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestLifecycle(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/uid1/mount")
		for range 2 { // again on what the first round left
			must(t, e.stage(v.stageRequest()))
			must(t, e.publish(v.publishRequest(target)))
			v.wantPublished(target, false)
			must(t, e.unpublish(v, target))
			e.wantNoPath(target)
			must(t, e.unstage(v, v.staging))
			e.wantClean()
		}
		if n := e.count("mkfs"); n != map[bool]int{true: 0, false: 1}[v.isBlock() || v.export != nil] {
			t.Errorf("mkfs ran %d times: %v", n, e)
		}
	})
}

func TestStageAgainIsASuccessAndMountsOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		for range 5 {
			must(t, e.stage(v.stageRequest()))
		}
		if !v.isBlock() {
			e.wantLines(v.staging, 1)
			if n := e.count("mount"); n != 1 {
				t.Errorf("%d mounts: %v", n, e)
			}
		}
		e.start() // a restart forgets nothing
		must(t, e.stage(v.stageRequest()))
		must(t, e.unstage(v, v.staging))
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestTheRecordComesFirstAndGoesLast(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		must(t, e.stage(v.stageRequest()))
		if e.effects[0] != "write record" {
			t.Errorf("stage began with %v", e)
		}
		target := e.path("pods/uid1/mount")
		e.effects = nil
		must(t, e.publish(v.publishRequest(target)))
		if e.effects[0] != "write record" {
			t.Errorf("publish began with %v", e)
		}
		e.effects = nil
		must(t, e.unpublish(v, target))
		if e.effects[len(e.effects)-1] != "erase record" {
			t.Errorf("unpublish ended with %v", e)
		}
		e.effects = nil
		must(t, e.unstage(v, v.staging))
		if e.effects[len(e.effects)-1] != "erase record" {
			t.Errorf("unstage ended with %v", e)
		}
	})
}

func TestC01BlockIsNeverFormattedOrMounted(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-c01", block())
	target := e.path("volumeDevices/publish/pvc-c01/uid1")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	if e.count("mkfs") != 0 || e.count("mount") != 0 || v.lun.content != "" {
		t.Errorf("the disk was touched: %v, content %q", e, v.lun.content)
	}
	st, err := os.Lstat(target)
	if err != nil || !st.Mode().IsRegular() {
		t.Errorf("the target is no file: %v, %v", st, err)
	}
	v.wantPublished(target, false)
}

func TestC01ACapabilityWithoutAccessType(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-c01", access.Capability{Mode: access.SingleNodeWriter})
	wantKind(t, e.stage(v.stageRequest()), fault.Invalid, "access type")
	wantKind(t, e.publish(v.publishRequest(e.path("t"))), fault.Invalid, "access type")
	if len(e.effects) != 0 {
		t.Errorf("side effects: %v", e)
	}
}

func TestStagedDifferentlyNamesTheField(t *testing.T) {
	cases := []struct {
		name, word string
		first      access.Capability
		change     func(*StageRequest)
	}{
		{"fs type", "fs type", ext4(), func(r *StageRequest) { r.Capability.FSType = "xfs" }},
		{"block after mount", "access type", ext4(), func(r *StageRequest) { r.Capability = block() }},
		{"mount after block", "access type", block(), func(r *StageRequest) { r.Capability = ext4() }},
		{"reader", "readonly", ext4(), func(r *StageRequest) { r.Capability.Mode = access.SingleNodeReaderOnly }},
		{"grant", "readonly", ext4(), func(r *StageRequest) { r.PublishContext[publish.KeyReadOnly] = "true" }},
		{"made anew", "serial", ext4(), func(r *StageRequest) { r.PublishContext[publish.KeySerial] = strings.Repeat("f", 32) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t)
			v := e.disk("pvc-1", c.first)
			must(t, e.stage(v.stageRequest()))
			before := len(e.effects)
			r := v.stageRequest()
			c.change(&r)
			wantKind(t, e.stage(r), fault.Exists, c.word)
			if len(e.effects) != before {
				t.Errorf("something was changed: %v", e.effects[before:])
			}
			must(t, e.stage(v.stageRequest()))
		})
	}
}

func TestAnotherShareUnderOneVolumeIDIsInTheWayOnlyWhileMounted(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	e.exports["192.0.2.10:/tank/csi/other"] = &export{}
	must(t, e.stage(v.stageRequest()))
	r := v.stageRequest()
	r.PublishContext[publish.KeyShare] = "/tank/csi/other"
	wantKind(t, e.stage(r), fault.Exists, "share")
	e.reboot()
	e.start()
	must(t, e.stage(r))
	if i, _ := e.top(v.staging); i.Source != "192.0.2.10:/tank/csi/other" {
		t.Errorf("mounted %s", i.Source)
	}
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

func TestAnotherVolumeAtTheStagingPath(t *testing.T) {
	for _, second := range []func(*env) *vol{volumes["nfs"], volumes["ext4"], volumes["block"]} {
		for _, first := range []access.Capability{ext4(), block()} {
			e := newEnv(t)
			a, b := e.disk("pvc-a", first), second(e)
			b.staging = a.staging
			must(t, e.stage(a.stageRequest()))
			wantKind(t, e.stage(b.stageRequest()), fault.Exists, a.id)
			wantKind(t, e.publish(b.publishRequest(e.path("t"))), fault.Precondition)
			must(t, e.unstage(b, b.staging+"x"))
			must(t, e.unstage(a, a.staging))
			must(t, e.stage(b.stageRequest()))
			must(t, e.unstage(b, b.staging))
			e.wantClean()
		}
	}
}

func TestAForeignMountAtTheStagingPath(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		e.foreign(v.staging)
		wantKind(t, e.stage(v.stageRequest()), fault.Exists, "/dev/vdb")
		wantKind(t, e.unstage(v, v.staging), fault.Precondition, "/dev/vdb")
		e.wantLines(v.staging, 1)
		if len(e.sessions) != 0 || len(e.effects) != 0 {
			t.Errorf("side effects: %v", e)
		}
	})
}

func TestAForeignMountOverAStagedVolumeIsLeftAlone(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest()))
	e.foreign(v.staging)
	wantKind(t, e.unstage(v, v.staging), fault.Precondition, "/dev/vdb")
	wantKind(t, e.stage(v.stageRequest()), fault.Exists, "/dev/vdb")
	e.wantLines(v.staging, 2)
}

func TestTheStagingPathMayBeMissingAndIsNoLink(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	v.staging = e.path("a/b") + "/c/globalmount"
	must(t, e.stage(v.stageRequest()))
	must(t, e.unstage(v, v.staging))

	v.staging = e.path("link")
	must(t, os.Symlink(e.dir, v.staging))
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "not a directory")
	must(t, os.Remove(v.staging))
	must(t, os.WriteFile(v.staging, nil, 0o600))
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "not a directory")
	v.staging += "/below"
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition)
	e.wantClean()
}

func TestMountOptions(t *testing.T) {
	mounted := func(t *testing.T, v *vol, change func(*StageRequest)) (options, sensitive []string) {
		t.Helper()
		r := v.stageRequest()
		change(&r)
		w, err := v.e.s.newStaging(&r)
		must(t, err)
		return v.e.s.mountOptions(w)
	}
	e := newEnv(t)
	attributes := func(o string) func(*StageRequest) {
		return func(r *StageRequest) { r.VolumeContext = map[string]string{"mountOptions": o} }
	}
	flags := func(f ...string) func(*StageRequest) {
		return func(r *StageRequest) {
			attributes("noatime")(r)
			r.Capability.MountFlags = f
		}
	}
	granted := func(f func(*StageRequest)) func(*StageRequest) {
		return func(r *StageRequest) {
			f(r)
			r.PublishContext[publish.KeyReadOnly] = "true"
		}
	}
	cases := []struct {
		name               string
		v                  *vol
		change             func(*StageRequest)
		options, sensitive []string
	}{
		{"ext4", e.disk("a", ext4()), func(*StageRequest) {}, nil, nil},
		{"xfs always nouuid", e.disk("b", xfs()), func(*StageRequest) {}, []string{"nouuid"}, nil},
		{"nfs", e.nfs("c"), func(*StageRequest) {}, []string{"hard"}, nil},
		{"attributes", e.disk("d", ext4()), attributes("noatime,discard"), []string{"noatime", "discard"}, nil},
		{"flags replace attributes", e.disk("e", ext4()), flags("discard"), nil, []string{"discard"}},
		{"flags of nfs", e.nfs("f"), flags("vers=4.1"), nil, []string{"hard", "vers=4.1"}},
		{"a quoted comma", e.disk("g", ext4()), flags(`context="system_u:object_r:x_t:s0:c1,c2",noatime`), nil, []string{`context="system_u:object_r:x_t:s0:c1,c2"`, "noatime"}},
		{"ro flag", e.disk("h", ext4()), flags("rw", "ro"), []string{"ro"}, nil},
		{"rw wins as the last", e.disk("i", ext4()), flags("ro,rw"), nil, nil},
		{"rw cannot undo a grant", e.disk("j", ext4()), granted(flags("rw")), []string{"ro", "noload"}, nil},
		{"read-only xfs", e.disk("k", xfs()), granted(func(*StageRequest) {}), []string{"ro", "nouuid", "norecovery"}, nil},
		{"reader", e.disk("l", with(ext4(), access.MultiNodeReaderOnly)), func(*StageRequest) {}, []string{"ro", "noload"}, nil},
		{"read-only nfs", e.nfs("m"), granted(func(*StageRequest) {}), []string{"ro", "hard"}, nil},
	}
	for _, c := range cases {
		options, sensitive := mounted(t, c.v, c.change)
		if !slices.Equal(options, c.options) || !slices.Equal(sensitive, c.sensitive) {
			t.Errorf("%s: options %q and %q, want %q and %q", c.name, options, sensitive, c.options, c.sensitive)
		}
	}
}

func TestC58NoSecretAndNoMountFlagIsKeptOrLogged(t *testing.T) {
	const sentinel = "sentinel-4711"
	secrets := map[string]string{
		"node.session.auth.username": "user", "node.session.auth.password": sentinel,
		"node.session.auth.username_in": "target", "node.session.auth.password_in": sentinel + "-mutual",
	}
	for _, trouble := range []error{nil, fault.New(fault.Precondition, "refused"), fault.New(fault.Unavailable, "iscsiadm is missing"), context.DeadlineExceeded} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		v.context[publish.KeyCHAP] = "secrets"
		v.lun.chap, v.lun.refuse = sentinel, trouble
		r := v.stageRequest()
		r.Secrets = secrets
		r.Capability.MountFlags = []string{"password=" + sentinel, "bind"}
		said := []string{}
		if err := e.stage(r); err != nil { // refused for "bind"
			said = append(said, err.Error())
		}
		r.Capability.MountFlags = []string{"password=" + sentinel + "\n"}
		wantKind(t, e.stage(r), fault.Invalid)
		r.Capability.MountFlags = []string{"password=" + sentinel}
		err := e.stage(r)
		if !errors.Is(err, trouble) || (err == nil) != (trouble == nil) {
			t.Fatalf("got %v, want %v", err, trouble)
		}
		if err != nil {
			said = append(said, err.Error())
		}
		entries, err := os.ReadDir(e.stateDir)
		must(t, err)
		if trouble == nil && len(entries) != 1 {
			t.Errorf("%d records", len(entries))
		}
		for _, f := range entries {
			b, err := os.ReadFile(filepath.Join(e.stateDir, f.Name()))
			must(t, err)
			st, err := f.Info()
			must(t, err)
			if st.Mode().Perm() != 0o600 {
				t.Errorf("the record's mode is %v", st.Mode())
			}
			said = append(said, string(b))
		}
		if all := strings.Join(said, "\n") + e.log.String(); strings.Contains(all, sentinel) {
			t.Errorf("the secret is out: %s", all)
		}
	}
}

func TestCHAP(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest())) // the password that the controller derives too
	must(t, e.unstage(v, v.staging))

	v.context[publish.KeyCHAP] = "secrets"
	wantKind(t, e.stage(v.stageRequest()), fault.Invalid, "node.session.auth.username")

	v.context[publish.KeyCHAP] = "none"
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "refuses the credentials")
	v.lun.chap = ""
	must(t, e.stage(v.stageRequest()))
	must(t, e.unstage(v, v.staging))

	e.s.NodeKey = nil
	v.context[publish.KeyCHAP] = "derived"
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "key file")
	e.wantClean()
}

func TestAnotherInstanceOnTheController(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	v.context[publish.KeyInitiator] = "iqn.2026-01.io.github.tarn-csi:other:node:" + nodeName
	wantKind(t, e.stage(v.stageRequest()), fault.Precondition, "--instance")
	if len(e.effects) != 0 {
		t.Errorf("side effects: %v", e)
	}
}

func TestC52TwoStagingPathsOfOneVolume(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		old, target := v.staging, e.path("pods/uid1/mount")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		v.staging = e.path("staging/a-hash")
		must(t, e.stage(v.stageRequest()))
		if e.count("mkfs") > 1 || e.count("fsck") > 0 {
			t.Errorf("a mounted disk was touched: %v", e)
		}
		must(t, e.publish(v.publishRequest(target))) // the same target from the new path
		v.wantPublished(target, false)
		must(t, e.unstage(v, old))
		v.wantPublished(target, false)
		if v.lun != nil && e.sessions[v.iqn] == nil {
			t.Fatal("the unstage of one path has logged out under the other")
		}
		second := e.path("pods/uid2/mount")
		must(t, e.unpublish(v, target))
		must(t, e.publish(v.publishRequest(second)))
		v.wantPublished(second, false)
		must(t, e.unpublish(v, second))
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestASecondStagingPathThatCannotJoin(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest()))
	first := v.staging
	v.staging = e.path("staging/second")
	for name, change := range map[string]func(*StageRequest){
		"fs type":  func(r *StageRequest) { r.Capability.FSType = "xfs" },
		"readonly": func(r *StageRequest) { r.Capability.Mode = access.SingleNodeReaderOnly },
	} {
		r := v.stageRequest()
		change(&r)
		wantKind(t, e.stage(r), fault.Precondition, first)
		if e.sessions[v.iqn] == nil {
			t.Fatalf("%s: taking back has logged out under the first", name)
		}
		e.wantLines(v.staging, 0)
		e.wantLines(first, 1)
	}
	must(t, e.unstage(v, first))
	e.wantClean()
}

func TestAFailedStageTakesBackWhatItBegan(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		must(t, e.stage(v.stageRequest()))
		steps := len(e.effects)
		must(t, e.unstage(v, v.staging))
		for _, mode := range []sabotage{failBefore, failAfter} {
			for k := 1; k <= steps; k++ {
				e.effects, e.mode, e.at = nil, mode, k
				err := e.stage(v.stageRequest())
				e.mode = none
				if err == nil { // a formatted disk takes fewer steps
					must(t, e.unstage(v, v.staging))
					continue
				}
				if !errors.Is(err, errSabotage) {
					t.Fatalf("step %d: %v", k, err)
				}
				e.wantClean()
			}
		}
		must(t, e.stage(v.stageRequest()))
	})
}

func TestAFailedStageWhoseUndoFailsKeepsTheRecord(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	v.lun.content, v.lun.damaged = "ext4", true
	e.mode, e.at = failBefore, 6 // write, mkdir, attach, write, fsck, then the undo's detach
	err := e.stage(v.stageRequest())
	wantKind(t, err, fault.Precondition, "run fsck by hand", "could not be taken back")
	e.mode = none
	if e.sessions[v.iqn] == nil {
		t.Fatal("the test has missed its point")
	}
	must(t, e.unstage(v, v.staging))
	e.wantClean()
}

func TestC35AHungServer(t *testing.T) {
	e := newEnv(t)
	sick, well := e.nfs("pvc-sick"), e.nfs("pvc-well")
	sick.export.hang = true
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		err := e.s.Stage(ctx, sick.stageRequest())
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		must(t, e.stage(well.stageRequest()))
		must(t, e.unstage(well, well.staging))
		must(t, e.call(e.s.Operations.Drain))
		e.wantClean()
	}
	sick.export.hang = false
	must(t, e.stage(sick.stageRequest()))
}

func TestAVolumeThatIsBusySaysSo(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	v.export.hang = true
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.s.Stage(ctx, v.stageRequest()) }()
	for len(e.s.Operations.Running()) == 0 {
		select {
		case err := <-done:
			t.Fatalf("it has ended: %v", err)
		default:
		}
	}
	other := v.stageRequest()
	other.StagingPath += "2"
	wantKind(t, e.stage(other), fault.Busy, "NodeStageVolume")
	wantKind(t, e.unstage(v, v.staging), fault.Busy)
	wantKind(t, e.publish(v.publishRequest(e.path("t"))), fault.Busy)
	wantKind(t, e.unpublish(v, e.path("t")), fault.Busy)
	// Another volume at the same path waits for its turn as well.
	w := e.nfs("pvc-2")
	r := w.stageRequest()
	r.StagingPath = v.staging
	wantKind(t, e.stage(r), fault.Busy)
	must(t, e.stage(w.stageRequest()))
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	must(t, e.call(e.s.Operations.Drain)) // what it began is taken back after it has answered
	must(t, e.unstage(w, w.staging))
	e.wantClean()
}

// Mount flags may be sensitive, so nothing remembers them: a repeat with others,
// or the same in another order, finds what is there.
func TestRepeatsDoNotDifferByMountFlags(t *testing.T) {
	for _, kind := range []string{"nfs", "ext4", "xfs"} {
		e := newEnv(t)
		v := volumes[kind](e)
		target := e.path("pods/uid1/mount")
		for n, flags := range [][]string{
			{"noatime", "nodiratime"}, {"nodiratime", "noatime"}, {"noatime,nodiratime"}, nil,
			{`context="system_u:object_r:container_file_t:s0:c1,c2"`}, {`context="system_u:object_r:container_file_t:s0:c3,c4"`, "rw"},
		} {
			v.cap.MountFlags = flags
			must(t, e.stage(v.stageRequest()))
			must(t, e.publish(v.publishRequest(target)))
			if e.count("mount") != 1 || e.count("bind") != 1 || e.count("unmount") != 0 {
				t.Fatalf("%s: repeat %d with %q did something: %v", kind, n, flags, e)
			}
		}
		must(t, e.unpublish(v, target))
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	}
}
