package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// env is a node: a kernel, and a daemon that can be killed and started again.
type env struct {
	*kernel
	s        *Service
	stateDir string
	key      chap.Key
	log      strings.Builder
}

const nodeName = "worker-1.example"

const mib = 1 << 20

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{kernel: newKernel(t), key: chap.NodeKey(chap.Key("master"), nodeName)}
	e.stateDir = filepath.Join(e.dir, "state")
	e.start()
	t.Cleanup(func() {
		if len(e.violations) > 0 {
			t.Errorf("what must never be asked of the kernel: %q", e.violations)
		}
	})
	return e
}

func naming(t testing.TB) ident.Naming {
	n, err := ident.NewNaming("iqn.2026-01.io.github.tarn-csi", "main")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (e *env) config() Config {
	log := logrus.New()
	log.SetOutput(&e.log)
	log.SetLevel(logrus.TraceLevel)
	return Config{
		NodeID:   ident.NodeID{Name: nodeName, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.21")}},
		Naming:   naming(e.t),
		NodeKey:  e.key,
		StateDir: e.stateDir,
		Attachers: map[string]attach.Attacher{
			publish.NFS: nfsClient{kernel: e.kernel}, publish.ISCSI: initiator{e.kernel},
		},
		Mounter: e.kernel, Filesystems: fsTools{e.kernel}, Host: fakeHost{e.kernel},
		NFSOptions: func(o []string) []string { return append([]string{"hard"}, o...) },
		Operations: op.NewTable(), Log: log,
	}
}

// start starts the daemon, anew where it ran.
func (e *env) start() {
	e.t.Helper()
	e.dead, e.mode = false, none
	s, err := New(e.config())
	if err != nil {
		e.t.Fatal(err)
	}
	s.disk = watchedDisk{kernel: e.kernel}
	s.records.disk = s.disk
	e.s = s
}

// loseState empties the daemon's private directory.
func (e *env) loseState() {
	if err := os.RemoveAll(e.stateDir); err != nil {
		e.t.Fatal(err)
	}
	e.start()
}

// call runs a call as an orchestrator does, with a deadline.
func (e *env) call(fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return fn(ctx)
}

func (e *env) stage(r StageRequest) error {
	return e.call(func(ctx context.Context) error { return e.s.Stage(ctx, r) })
}

func (e *env) publish(r PublishRequest) error {
	return e.call(func(ctx context.Context) error { return e.s.Publish(ctx, r) })
}

func (e *env) unstage(v *vol, path string) error {
	return e.call(func(ctx context.Context) error { return e.s.Unstage(ctx, v.id, path) })
}

func (e *env) unpublish(v *vol, path string) error {
	return e.call(func(ctx context.Context) error { return e.s.Unpublish(ctx, v.id, path) })
}

// path is a path on the node; its parent exists.
func (e *env) path(name string) string {
	p := filepath.Join(e.dir, "kubelet", name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		e.t.Fatal(err)
	}
	return p
}

// vol is a volume that is published to this node.
type vol struct {
	e       *env
	id      string
	context map[string]string
	cap     access.Capability
	staging string
	iqn     string
	lun     *lun
	export  *export
}

// disk makes an iSCSI volume with a blank disk.
func (e *env) disk(name string, c access.Capability) *vol {
	uuid := digest(name) + "01234567"
	iqn := naming(e.t).Target(uuid)
	l := &lun{number: 1, serial: uuid, size: 100 * mib, chap: chap.Derive(e.key, nodeName, uuid).Password}
	e.luns[iqn] = l
	return &vol{
		e: e, id: "tank/" + name, iqn: iqn, lun: l, cap: c, staging: e.path("staging/" + name),
		context: publish.Context{
			Protocol: publish.ISCSI, IQN: iqn, Portals: []string{"192.0.2.10:3260"}, LUN: 1, Serial: uuid,
			Initiator: naming(e.t).Initiator(nodeName), CHAP: chap.Derived,
		}.Map(),
	}
}

// nfs makes an NFS volume.
func (e *env) nfs(name string) *vol {
	x := &export{size: 100 * mib}
	share := "/tank/csi/" + name
	e.mu.Lock() // a call may be running
	e.exports["192.0.2.10:"+share] = x
	e.mu.Unlock()
	return &vol{
		e: e, id: "tank/" + name, export: x, staging: e.path("staging/" + name),
		cap:     access.Capability{Type: access.Mount, Mode: access.MultiNodeMultiWriter},
		context: publish.Context{Protocol: publish.NFS, Server: "192.0.2.10", Share: share}.Map(),
	}
}

func (v *vol) stageRequest() StageRequest {
	return StageRequest{VolumeID: v.id, StagingPath: v.staging, Capability: v.cap, PublishContext: maps.Clone(v.context)}
}

func (v *vol) publishRequest(target string) PublishRequest {
	return PublishRequest{
		VolumeID: v.id, StagingPath: v.staging, TargetPath: target, Capability: v.cap, PublishContext: maps.Clone(v.context),
	}
}

func ext4() access.Capability {
	return access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "ext4"}
}

func xfs() access.Capability {
	return access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "xfs"}
}

func block() access.Capability {
	return access.Capability{Type: access.Block, Mode: access.SingleNodeWriter}
}

func with(c access.Capability, m access.Mode) access.Capability {
	c.Mode = m
	return c
}

// volumes are one volume of each kind, each in a node of its own.
var volumes = map[string]func(*env) *vol{
	"nfs":   func(e *env) *vol { return e.nfs("pvc-nfs") },
	"ext4":  func(e *env) *vol { return e.disk("pvc-ext4", ext4()) },
	"xfs":   func(e *env) *vol { return e.disk("pvc-xfs", xfs()) },
	"block": func(e *env) *vol { return e.disk("pvc-block", block()) },
}

func eachKind(t *testing.T, fn func(t *testing.T, e *env, v *vol)) {
	for _, kind := range slices.Sorted(maps.Keys(volumes)) {
		t.Run(kind, func(t *testing.T) {
			e := newEnv(t)
			fn(t, e, volumes[kind](e))
		})
	}
}

func (v *vol) isBlock() bool { return v.cap.Type == access.Block }

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKind fails the test unless err is of the kind and its text has the words.
func wantKind(t testing.TB, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want the kind %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// wantClean fails the test unless nothing is left of any volume.
func (e *env) wantClean() {
	e.t.Helper()
	if rest := e.mounts[2:]; len(rest) > 0 {
		e.t.Errorf("mounts are left: %+v", rest)
	}
	for iqn := range e.sessions {
		e.t.Errorf("a session is left: %s", iqn)
	}
	for iqn := range e.records {
		e.t.Errorf("a node record is left: %s", iqn)
	}
	entries, err := os.ReadDir(e.stateDir)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range entries {
		b, err := os.ReadFile(filepath.Join(e.stateDir, f.Name()))
		e.t.Errorf("a record is left: %s %v\n%s", f.Name(), err, b)
	}
}

func (e *env) wantNoPath(path string) {
	e.t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		e.t.Errorf("%s is still there (%v)", path, err)
	}
}

func (e *env) wantLines(path string, n int) {
	e.t.Helper()
	if got := e.lines(path); got != n {
		e.t.Errorf("%d mount lines at %s, want %d", got, path, n)
	}
}

// wantPublished fails the test unless exactly this volume is at target.
func (v *vol) wantPublished(target string, readOnly bool) {
	v.e.t.Helper()
	v.e.wantLines(target, 1)
	i, _ := v.e.top(target)
	sb := v.e.supers[number{i.Major, i.Minor}]
	switch {
	case v.isBlock():
		d := v.e.sessions[v.iqn]
		if d == nil || v.e.nodes[i.ID] != d.number {
			v.e.t.Errorf("%s is not the volume's device: %+v", target, i)
		} else if d.ro != readOnly {
			v.e.t.Errorf("the device is read-only: %v, want %v", d.ro, readOnly)
		}
		return
	case sb == nil, v.lun != nil && sb.lun != v.lun, v.export != nil && sb.export != v.export:
		v.e.t.Errorf("%s is not the volume: %+v", target, i)
		return
	case sb.dead:
		v.e.t.Errorf("%s is dead", target)
	}
	if ro := sb.ro || slices.Contains(i.Options, "ro"); ro != readOnly {
		v.e.t.Errorf("%s is read-only: %v, want %v", target, ro, readOnly)
	}
}

func (e *env) count(effect string) int {
	n := 0
	for _, f := range e.effects {
		if strings.HasPrefix(f, effect) {
			n++
		}
	}
	return n
}

func (e *env) String() string { return fmt.Sprint(e.effects) }
