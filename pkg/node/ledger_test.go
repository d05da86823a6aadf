package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/file"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func newLedger(t *testing.T) ledger {
	l := ledger{dir: filepath.Join(t.TempDir(), "a", "state"), disk: hostDisk{}}
	must(t, l.open())
	return l
}

func TestRecordsAreFoundByVolumeAndByPath(t *testing.T) {
	l := newLedger(t)
	a := &stageRecord{
		VolumeID: "tank/a", StagingPath: "/s/1", Protocol: publish.ISCSI, Type: access.Mount.String(), FSType: "xfs", State: stateFormatting,
		Target: attach.Target{IQN: "iqn.2026-01.a:b", Portals: []string{"192.0.2.1:3260"}, LUN: 1, Serial: "0"}, Boot: "b", Major: 8, Minor: 16,
	}
	second := &stageRecord{VolumeID: "tank/a", StagingPath: "/s/2"}
	b := &stageRecord{VolumeID: "tank/b", StagingPath: "/s/1"}
	p := &publishRecord{VolumeID: "tank/a", TargetPath: "/s/1", Mode: access.SingleNodeWriter, Boot: "b", Root: "/"}
	for _, r := range []*stageRecord{a, second, b} {
		must(t, l.saveStage(r))
	}
	must(t, l.savePublish(p))

	got, err := l.stage("tank/a", "/s/1")
	must(t, err)
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
	gotP, err := l.publish("tank/a", "/s/1")
	must(t, err)
	if diff := cmp.Diff(p, gotP); diff != "" {
		t.Error(diff)
	}
	count := func(want int) func([]*stageRecord, error) {
		return func(all []*stageRecord, err error) {
			t.Helper()
			if must(t, err); len(all) != want {
				t.Errorf("%d records, want %d", len(all), want)
			}
		}
	}
	count(3)(l.stages(""))
	count(2)(l.stages("tank/a"))
	count(2)(l.stagesAt("/s/1"))
	count(0)(l.stages("tank/c"))
	must(t, l.removeStage(a))
	must(t, l.removeStage(a))
	count(2)(l.stages(""))
	if r, err := l.stage("tank/a", "/s/1"); r != nil || err != nil {
		t.Errorf("got %v, %v", r, err)
	}
	must(t, l.removePublish("tank/a", "/s/1"))
	if r, err := l.publish("tank/a", "/s/1"); r != nil || err != nil {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestAnotherFileInTheStateDirectoryIsNoRecord(t *testing.T) {
	l := newLedger(t)
	for _, name := range []string{"README", "stage-backup", "other.json"} {
		must(t, os.WriteFile(filepath.Join(l.dir, name), []byte("x"), 0o600))
	}
	all, err := l.stages("")
	if err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestWhatAPowerLossLeftOfAWriteIsRemoved(t *testing.T) {
	l := newLedger(t)
	left := file.Unfinished(l.name(stagePrefix, "tank/v", "/s"))
	must(t, os.WriteFile(left, []byte("{"), 0o600))
	must(t, l.open())
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestARecordThatCannotBeUsedStopsTheCall(t *testing.T) {
	for name, content := range map[string]string{
		"cut off":        `{"version":1,`,
		"empty":          ``,
		"later version":  `{"version":2,"volumeID":"tank/pvc-1","stagingPath":"PATH","targetPath":"PATH"}`,
		"another volume": `{"version":1,"volumeID":"tank/pvc-2","stagingPath":"PATH","targetPath":"PATH"}`,
		"another path":   `{"version":1,"volumeID":"tank/pvc-1","stagingPath":"/x","targetPath":"/x"}`,
	} {
		e := newEnv(t)
		v := e.disk("pvc-1", ext4())
		target := e.path("t")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		for _, file := range []string{
			e.s.records.name(publishPrefix, v.id, target), e.s.records.name(stagePrefix, v.id, v.staging),
		} {
			path := v.staging
			if strings.Contains(file, publishPrefix) {
				path = target
			}
			must(t, os.WriteFile(file, []byte(strings.ReplaceAll(content, "PATH", path)), 0o600))
			before := len(e.effects)
			calls := map[string]error{"publish": e.publish(v.publishRequest(target)), "unpublish": e.unpublish(v, target)}
			if strings.Contains(file, stagePrefix) {
				calls = map[string]error{"stage": e.stage(v.stageRequest()), "unstage": e.unstage(v, v.staging)}
			}
			for call, err := range calls {
				if err == nil || fault.Kind(err) != nil || !strings.Contains(err.Error(), file) {
					t.Errorf("%s, %s: got %v", name, call, err)
				}
			}
			if len(e.effects) != before {
				t.Errorf("%s: something was done: %v", name, e.effects[before:])
			}
		}
	}
}

func TestAStateDirectoryThatCannotBeUsed(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, os.RemoveAll(e.stateDir))
	wantKind(t, e.stage(v.stageRequest()), fault.Unavailable, e.stateDir)
	must(t, os.WriteFile(e.stateDir, nil, 0o600))
	if _, err := New(e.config()); err == nil {
		t.Error("a file was taken for a state directory")
	}
}

func TestHostDiskRemovesOnlyWhatItShould(t *testing.T) {
	d, dir := hostDisk{}, t.TempDir()
	file, sub := filepath.Join(dir, "f"), filepath.Join(dir, "d")
	must(t, d.mkfile(file))
	must(t, d.mkdir(sub))
	if err := d.mkfile(file); err == nil {
		t.Error("an existing file was taken over")
	}
	must(t, os.Symlink(sub, filepath.Join(dir, "link")))
	for what, err := range map[string]error{
		"rmdir of a file":       d.rmdir(file),
		"rmdir of a link":       d.rmdir(filepath.Join(dir, "link")),
		"unlink of a directory": d.rmfile(sub),
		"file below a file":     d.mkfile(filepath.Join(file, "x")),
		"file over a link":      d.mkfile(filepath.Join(dir, "link")),
	} {
		if err == nil {
			t.Errorf("%s was done", what)
		}
	}
	must(t, d.rmfile(file))
	must(t, d.rmdir(sub))
}
