//go:build guest

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/machine"
)

// host is the pool and the daemon that most tests share.
var host harness.Shared

func TestMain(m *testing.M) { os.Exit(host.Run("faults", m.Run)) }

// rpcTimeout is long: the processor is emulated.
const rpcTimeout = 3 * time.Minute

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rpcTimeout)
	t.Cleanup(cancel)
	return ctx
}

// oldAPI and newAPI are the shared daemon in csi.v0 and csi.v1.
func oldAPI() plugin { return inV0(daemonConn{host.Daemon}) }
func newAPI() plugin { return inV1(daemonConn{host.Daemon}) }

// daemonConn is the connection that a daemon has now: after a restart it is
// another one.
type daemonConn struct{ *harness.Daemon }

func (c daemonConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.Conn().Invoke(ctx, method, args, reply, opts...)
}

func (c daemonConn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.Conn().NewStream(ctx, d, method, opts...)
}

// ownDaemon is a daemon of a test alone, with an instance, a parent dataset and
// flags of its own, on the shared pool.
func ownDaemon(t *testing.T, name string, args ...string) *harness.Daemon {
	t.Helper()
	parent := host.Pool.Name + "/" + name
	machine.Sh(t, "zfs", "create", parent)
	return startDaemon(t, name, "p="+parent, func() error { return machine.Run("zfs", "destroy", "-r", parent) }, args...)
}

// startDaemon starts a daemon that is stopped, and whose pool is taken down, at
// the end of the test.
func startDaemon(t *testing.T, name, pool string, down func() error, args ...string) *harness.Daemon {
	t.Helper()
	dir := filepath.Join(host.Daemon.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &harness.Daemon{Dir: dir, Pool: pool, Env: host.Daemon.Env,
		Args: append([]string{"--reconcile-interval", "12h", "--instance", name}, args...)}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("the log of %s:\n%s", name, d.Log())
		}
		if err := down(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(soon(t)); err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	return d
}

// replaceTool puts a script in the place of one of the daemons' tools, until the
// test ends or the returned function is called. "$real" is the tool itself, and
// "$dir" the folder that is returned.
func replaceTool(t *testing.T, tool, script string) (dir string, restore func()) {
	t.Helper()
	real, err := exec.LookPath(tool)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	file := filepath.Join(host.Tools, tool)
	text := fmt.Sprintf("#!/bin/bash\nreal=%s dir=%s\n%s\n", real, dir, script)
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return dir, restore
}

// byMany is how a volume is used that has several writers.
func byMany() *csi.VolumeCapability {
	c := asFilesystem("")
	c.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	return c
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// vol is a volume on its way through its life, in one version.
type vol struct {
	t       *testing.T
	p       plugin
	id      string
	word    string
	cap     *csi.VolumeCapability
	node    string
	context map[string]string
	info    map[string]string
	secrets map[string]string
	dir     string
}

// newVol makes a volume on the daemon that the plugin is.
func newVol(t *testing.T, p plugin, r *csi.CreateVolumeRequest) *vol {
	t.Helper()
	made := must[*csi.CreateVolumeResponse](t, "CreateVolume "+r.GetName())(p.CreateVolume(soon(t), r)).GetVolume()
	v := &vol{t: t, p: p, id: made.GetVolumeId(), word: r.GetName(), cap: r.GetVolumeCapabilities()[0], context: made.GetVolumeContext(),
		dir: filepath.Join(host.Daemon.Dir, "use", r.GetName())}
	v.node = must[*csi.NodeGetInfoResponse](t, "NodeGetInfo")(p.NodeGetInfo(soon(t), &csi.NodeGetInfoRequest{})).GetNodeId()
	for _, dir := range []string{v.staging(), filepath.Dir(v.target())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func newNFS(t *testing.T, p plugin, name string) *vol {
	t.Helper()
	return newVol(t, p, creation(name, "nfs", 64*mib, asFilesystem("")))
}

func newExt4(t *testing.T, p plugin, name string) *vol {
	t.Helper()
	return newVol(t, p, creation(name, "iscsi", 64*mib, asFilesystem("ext4")))
}

func newBlock(t *testing.T, p plugin, name string) *vol {
	t.Helper()
	return newVol(t, p, creation(name, "iscsi", 64*mib, asBlock()))
}

func (v *vol) block() bool { return v.cap.GetBlock() != nil }

// dataset is what the volume is on the shared pool.
func (v *vol) dataset() string { return host.Pool.Parent() + "/" + strings.TrimPrefix(v.id, "p/") }

func (v *vol) staging() string { return filepath.Join(v.dir, "staging") }
func (v *vol) target() string  { return filepath.Join(v.dir, "pod", "target") }

// data is the file, or the device, that a workload uses.
func (v *vol) data() string {
	if v.block() {
		return v.target()
	}
	return filepath.Join(v.target(), "keep.txt")
}

func (v *vol) publishRequest() *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: v.node, VolumeCapability: v.cap, VolumeContext: v.context, Secrets: v.secrets}
}

func (v *vol) publish() {
	v.t.Helper()
	v.info = must[*csi.ControllerPublishVolumeResponse](v.t, "ControllerPublishVolume")(v.p.ControllerPublishVolume(soon(v.t), v.publishRequest())).GetPublishContext()
}

func (v *vol) stageRequest() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{VolumeId: v.id, PublishContext: v.info, StagingTargetPath: v.staging(),
		VolumeCapability: v.cap, VolumeContext: v.context, Secrets: v.secrets}
}

func (v *vol) tryStage() error {
	_, err := v.p.NodeStageVolume(soon(v.t), v.stageRequest())
	return err
}

func (v *vol) stage() {
	v.t.Helper()
	v.ok("NodeStageVolume", v.tryStage())
}

func (v *vol) nodePublishRequest() *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{VolumeId: v.id, PublishContext: v.info, StagingTargetPath: v.staging(), TargetPath: v.target(),
		VolumeCapability: v.cap, VolumeContext: v.context}
}

func (v *vol) tryNodePublish() error {
	_, err := v.p.NodePublishVolume(soon(v.t), v.nodePublishRequest())
	return err
}

func (v *vol) nodePublish() {
	v.t.Helper()
	v.ok("NodePublishVolume", v.tryNodePublish())
}

func (v *vol) tryNodeUnpublish() error {
	_, err := v.p.NodeUnpublishVolume(soon(v.t), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target()})
	return err
}

func (v *vol) nodeUnpublish() {
	v.t.Helper()
	v.ok("NodeUnpublishVolume", v.tryNodeUnpublish())
}

func (v *vol) tryUnstage() error {
	_, err := v.p.NodeUnstageVolume(soon(v.t), &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging()})
	return err
}

func (v *vol) unstage() {
	v.t.Helper()
	v.ok("NodeUnstageVolume", v.tryUnstage())
}

func (v *vol) tryUnpublish() error {
	_, err := v.p.ControllerUnpublishVolume(soon(v.t), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: v.node})
	return err
}

func (v *vol) unpublish() {
	v.t.Helper()
	v.ok("ControllerUnpublishVolume", v.tryUnpublish())
}

func (v *vol) tryRemove() error {
	_, err := v.p.DeleteVolume(soon(v.t), &csi.DeleteVolumeRequest{VolumeId: v.id})
	return err
}

func (v *vol) remove() {
	v.t.Helper()
	v.ok("DeleteVolume", v.tryRemove())
}

func (v *vol) ok(what string, err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatalf("%s of %s: %v", what, v.id, err)
	}
}

// up takes a new volume to where a workload uses it; down takes it away.
func (v *vol) up() {
	v.t.Helper()
	v.publish()
	v.stage()
	v.nodePublish()
}

func (v *vol) down() {
	v.t.Helper()
	v.nodeUnpublish()
	v.unstage()
	v.unpublish()
	v.remove()
}

// mounts are the lines of the mount table at a path.
func mounts(t *testing.T, path string) []mount.Info {
	t.Helper()
	list, err := mount.New(nil).At(soon(t), path)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// write writes a text at the begin of a file or device, and to its disk.
func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(text), 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, path, text string) {
	t.Helper()
	b := make([]byte, len(text))
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != text {
		t.Errorf("%s holds %q, %v, want %q", path, b, err, text)
	}
}

// sessions are the targets to which this machine has a session.
func sessions(t *testing.T) (iqns []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/class/iscsi_session/*/targetname")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			iqns = append(iqns, strings.TrimSpace(string(b)))
		}
	}
	return iqns
}

const (
	targets    = "/sys/kernel/config/target/iscsi"
	backstores = "/sys/kernel/config/target/core"
	nodeRecord = "/etc/iscsi/nodes"
)

// targetsLeft are the targets and backstores in configfs.
func targetsLeft(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{targets + "/iqn*", backstores + "/iblock_*/*/udev_path"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	return list
}

// exportsOf are the lines of mountd's table about a path: CLIENT(OPTIONS).
func exportsOf(t *testing.T, path string) (list []string) {
	t.Helper()
	raw, err := os.ReadFile("/var/lib/nfs/etab")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if client, ok := strings.CutPrefix(strings.TrimSpace(line), path+"\t"); ok {
			list = append(list, client)
		}
	}
	return list
}

// forgetRecords removes all that the daemon remembers on its node.
func forgetRecords(t *testing.T, d *harness.Daemon) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.Dir, "state/node/*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no record to lose: %v", err)
	}
	for _, file := range files {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
}

// again kills a daemon and starts it anew; the connection is another one.
func again(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Kill()
	if err := d.Start(soon(t)); err != nil {
		t.Fatal(err)
	}
}
