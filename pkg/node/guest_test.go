//go:build guest

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	attachiscsi "github.com/tarn-csi/tarn/pkg/attach/iscsi"
	attachnfs "github.com/tarn-csi/tarn/pkg/attach/nfs"
	"github.com/tarn-csi/tarn/pkg/chap"
	exports "github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	exportiscsi "github.com/tarn-csi/tarn/pkg/export/iscsi"
	exportnfs "github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

// These tests need a machine that is storage host and node at once, with the
// real exporters, initiators and filesystems.

var pool = machine.Pool{Name: "tarnnode", Bytes: 8 << 30, Options: []string{"-O", "volmode=dev"}}

func TestMain(m *testing.M) { os.Exit(pool.Run(m, machine.Nothing, machine.Nothing)) }

// guest is the node, and the exporters of the storage host.
type guest struct {
	t         *testing.T
	s         *Service
	m         *mount.Mounter
	dir       string
	initiator *attachiscsi.Attacher
	iscsi     *exportiscsi.Exporter
	nfs       *exportnfs.Exporter
	master    chap.Key
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := run.New(log)
	g := &guest{t: t, m: mount.New(r), dir: t.TempDir(), master: chap.Key(strings.Repeat("m", chap.KeySize))}
	g.initiator = attachiscsi.New(r, attachiscsi.Config{})
	g.iscsi = exportiscsi.New(exportiscsi.Config{
		FS: configfs.NewHost(configfs.Root), Naming: naming(t), LockPath: filepath.Join(g.dir, "lock"), Log: log, Runner: r})
	g.nfs = exportnfs.New(r, exportnfs.HostPaths, naming(t).Instance(), log)
	must(t, g.iscsi.Ready(t.Context()))
	must(t, g.nfs.Ready(t.Context()))
	g.start(r)
	must(t, g.s.Ready(t.Context()))
	return g
}

func (g *guest) start(r *run.Runner) {
	g.t.Helper()
	var err error
	g.s, err = New(Config{
		NodeID:   ident.NodeID{Name: nodeName, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		Naming:   naming(g.t),
		NodeKey:  chap.NodeKey(g.master, nodeName),
		StateDir: filepath.Join(g.dir, "state"),
		Attachers: map[string]attach.Attacher{
			publish.NFS: attachnfs.New(r), publish.ISCSI: g.initiator,
		},
		Mounter: g.m, Filesystems: mount.NewFilesystems(r), Host: NewTools(r), NFSOptions: attachnfs.Options,
	})
	must(g.t, err)
}

// loseState starts the daemon with an empty private directory.
func (g *guest) loseState() {
	g.t.Helper()
	must(g.t, os.RemoveAll(filepath.Join(g.dir, "state")))
	log := logrus.New()
	log.SetOutput(io.Discard)
	g.start(run.New(log))
}

// guestVolume is a volume of the pool that is open to this node.
type guestVolume struct {
	g       *guest
	id      string
	dataset string
	cap     access.Capability
	context publish.Context
	open    func(grants ...exports.Grant)
	staging string
}

var guestVolumes int

const guestSize = 512 << 20 // mkfs.xfs needs 300 MB

func (g *guest) disk(c access.Capability, origin string) *guestVolume {
	g.t.Helper()
	guestVolumes++
	uuid := fmt.Sprintf("%08x%024x", time.Now().Unix(), guestVolumes)
	name := fmt.Sprintf("pvc-%d", guestVolumes)
	v := &guestVolume{g: g, id: "tank/" + name, dataset: pool.Name + "/" + name, cap: c, staging: filepath.Join(g.dir, "staging", name)}
	if origin == "" {
		machine.Sh(g.t, "zfs", "create", "-s", "-o", "volblocksize=16k", "-o", "volmode=dev", "-V", fmt.Sprint(guestSize), v.dataset)
	} else {
		machine.Sh(g.t, "zfs", "clone", "-o", "volmode=dev", origin, v.dataset)
	}
	pool.DestroyAtEnd(g.t, v.dataset)
	machine.Device(g.t, v.dataset)
	v.context = publish.Context{
		Protocol: publish.ISCSI, IQN: naming(g.t).Target(uuid), Portals: []string{"127.0.0.1:3260"}, LUN: exportiscsi.LUN,
		Serial: uuid, Initiator: naming(g.t).Initiator(nodeName), CHAP: chap.Derived,
	}
	v.open = func(grants ...exports.Grant) {
		g.t.Helper()
		must(g.t, g.iscsi.Ensure(context.Background(), exports.Volume{
			ID: v.id, UUID: uuid, Source: "/dev/zvol/" + v.dataset, SizeBytes: guestSize,
			Portals: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:3260")}, Grants: grants,
		}))
	}
	v.open(v.grant())
	g.t.Cleanup(func() {
		if err := g.iscsi.Remove(context.Background(), uuid); err != nil {
			g.t.Error(err)
		}
	})
	g.t.Cleanup(v.letGo)
	return v
}

func (v *guestVolume) grant() exports.Grant {
	c := chap.Derive(chap.NodeKey(v.g.master, nodeName), nodeName, v.context.Serial)
	return exports.Grant{Node: nodeName, Initiator: v.context.Initiator, CHAP: &c, ReadOnly: v.context.ReadOnly}
}

func targetOf(v *guestVolume) attach.Target {
	c := v.context
	return attach.Target{IQN: c.IQN, Portals: c.Portals, LUN: c.LUN, Serial: c.Serial, Initiator: c.Initiator}
}

// letGo takes away what a test that failed has left on the node, so that the
// next one can begin.
func (v *guestVolume) letGo() {
	if !v.g.t.Failed() {
		return
	}
	_ = v.call(func(ctx context.Context) error {
		table, err := v.g.m.Mounts(ctx)
		for _, i := range table {
			if strings.HasPrefix(i.Target, v.g.dir+"/") && strings.HasSuffix(i.Target, filepath.Base(v.dataset)) {
				err = errors.Join(err, v.g.m.Unmount(ctx, i.Target))
			}
		}
		return errors.Join(err, v.g.initiator.Detach(ctx, attach.Target{IQN: v.context.IQN}))
	})
}

func (g *guest) share() *guestVolume {
	g.t.Helper()
	guestVolumes++
	name := fmt.Sprintf("pvc-%d", guestVolumes)
	uuid := fmt.Sprintf("%08x%024x", time.Now().Unix(), guestVolumes)
	v := &guestVolume{
		g: g, id: "tank/" + name, dataset: pool.Name + "/" + name, staging: filepath.Join(g.dir, "staging", name),
		cap:     access.Capability{Type: access.Mount, Mode: access.MultiNodeMultiWriter},
		context: publish.Context{Protocol: publish.NFS, Server: "127.0.0.1", Share: "/srv/" + name},
	}
	machine.Sh(g.t, "zfs", "create", "-o", "mountpoint="+v.context.Share, v.dataset)
	pool.DestroyAtEnd(g.t, v.dataset)
	must(g.t, g.nfs.Ensure(context.Background(), exports.Volume{
		ID: v.id, UUID: uuid, Source: v.context.Share, Squash: exports.Squash{Mode: "none"},
		Grants: []exports.Grant{{Node: nodeName, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}},
	}))
	g.t.Cleanup(func() {
		if err := g.nfs.Remove(context.Background(), uuid); err != nil {
			g.t.Error(err)
		}
	})
	return v
}

func (v *guestVolume) call(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return fn(ctx)
}

func (v *guestVolume) stage() error {
	return v.call(func(ctx context.Context) error {
		return v.g.s.Stage(ctx, StageRequest{VolumeID: v.id, StagingPath: v.staging, Capability: v.cap, PublishContext: maps.Clone(v.context.Map())})
	})
}

func (v *guestVolume) publish(target string, readOnly bool) error {
	return v.call(func(ctx context.Context) error {
		return v.g.s.Publish(ctx, PublishRequest{
			VolumeID: v.id, StagingPath: v.staging, TargetPath: target, Capability: v.cap, ReadOnly: readOnly, PublishContext: v.context.Map()})
	})
}

func (v *guestVolume) unpublish(target string) error {
	return v.call(func(ctx context.Context) error { return v.g.s.Unpublish(ctx, v.id, target) })
}

func (v *guestVolume) unstage() error {
	return v.call(func(ctx context.Context) error { return v.g.s.Unstage(ctx, v.id, v.staging) })
}

func (v *guestVolume) target(pod string) string {
	v.g.t.Helper()
	dir := filepath.Join(v.g.dir, "pods", pod)
	must(v.g.t, os.MkdirAll(dir, 0o755))
	return filepath.Join(dir, filepath.Base(v.dataset))
}

func (g *guest) lines(path string) int {
	g.t.Helper()
	at, err := g.m.At(context.Background(), path)
	must(g.t, err)
	return len(at)
}

// wantGone fails the test unless nothing is left of the volume on this node.
func (v *guestVolume) wantGone() {
	v.g.t.Helper()
	table, err := v.g.m.Mounts(context.Background())
	must(v.g.t, err)
	for _, i := range table {
		if strings.HasPrefix(i.Target, v.g.dir+"/") && strings.HasSuffix(i.Target, filepath.Base(v.dataset)) {
			v.g.t.Errorf("left: %+v", i)
		}
	}
	if v.context.Protocol == publish.ISCSI {
		_, attached, err := v.g.initiator.Find(context.Background(), attach.Target{IQN: v.context.IQN, LUN: 1})
		if err != nil || attached {
			v.g.t.Errorf("the disk is still attached: %v, %v", attached, err)
		}
	}
	if r, err := v.g.s.records.stages(v.id); err != nil || len(r) > 0 {
		v.g.t.Errorf("records are left: %v, %v", r, err)
	}
	if r, err := v.g.s.records.publishes(v.id); err != nil || len(r) > 0 {
		v.g.t.Errorf("records are left: %v, %v", r, err)
	}
}

// each runs a test on a volume of each kind; the short form leaves xfs to the
// tests that are about it.
func (g *guest) each(fn func(v *guestVolume)) {
	volumes := []*guestVolume{g.share(), g.disk(ext4(), ""), g.disk(block(), "")}
	if !testing.Short() {
		volumes = append(volumes, g.disk(xfs(), ""))
	}
	for _, v := range volumes {
		g.t.Logf("%s %s", v.context.Protocol, v.cap)
		fn(v)
	}
}

// clones are the filesystems whose clones are tried; xfs is the one that refuses
// the same filesystem twice.
func clones() []access.Capability {
	if testing.Short() {
		return []access.Capability{xfs()}
	}
	return []access.Capability{xfs(), ext4()}
}

// use writes a text through the target path and reads it back.
func (v *guestVolume) use(target, text string) error {
	if v.cap.Type == access.Block {
		return overwrite(target, text)
	}
	return overwrite(filepath.Join(target, "file"), text)
}

func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != text {
		return fmt.Errorf("read %q: %w", got, err)
	}
	return nil
}
