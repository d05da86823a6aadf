//go:build guest

// Package e2e tests the built daemon on real ZFS, NFS and iSCSI: one daemon
// and one pool for all tests, as a host would have.
package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
	"github.com/tarn-csi/tarn/test/harness"
)

// host is what the tests share.
var host harness.Shared

func TestMain(m *testing.M) { os.Exit(host.Run("e2e", m.Run)) }

// kind is a way to use volumes.
type kind struct {
	name       string
	parameters map[string]string
	fsType     string
	block      bool
	multiNode  bool
	sizeBytes  int64
}

// The suite asks for half of a size too, and xfs needs 300 MiB.
var kinds = []kind{
	{name: "nfs", parameters: map[string]string{"protocol": "nfs"}, multiNode: true, sizeBytes: 64 << 20},
	{name: "iscsi ext4", parameters: map[string]string{"protocol": "iscsi"}, fsType: "ext4", sizeBytes: 64 << 20},
	{name: "iscsi xfs", parameters: map[string]string{"protocol": "iscsi", "fsType": "xfs"}, fsType: "xfs", sizeBytes: 640 << 20},
	{name: "iscsi block", parameters: map[string]string{"protocol": "iscsi"}, block: true, multiNode: true, sizeBytes: 64 << 20},
}

func (k kind) protocol() string { return k.parameters["protocol"] }

// word is the kind's short name.
func (k kind) word() string { return k.name[strings.LastIndexByte(k.name, ' ')+1:] }

func (k kind) capability() *csiv0.VolumeCapability {
	c := &csiv0.VolumeCapability{AccessMode: &csiv0.VolumeCapability_AccessMode{Mode: csiv0.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if k.block {
		c.AccessType = &csiv0.VolumeCapability_Block{Block: &csiv0.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csiv0.VolumeCapability_Mount{Mount: &csiv0.VolumeCapability_MountVolume{FsType: k.fsType}}
	}
	return c
}

// live is a volume in use.
type live struct {
	t     *testing.T
	kind  kind
	id    string
	node  string
	attrs map[string]string
	info  map[string]string
	dir   string
}

const rpcTimeout = 3 * time.Minute

func controller() csiv0.ControllerClient {
	return csiv0.NewControllerClient(host.Daemon.Conn())
}

func node() csiv0.NodeClient { return csiv0.NewNodeClient(host.Daemon.Conn()) }

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rpcTimeout)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T, what string) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// create makes a volume.
func create(t *testing.T, k kind, name string) *live {
	t.Helper()
	r := must[*csiv0.CreateVolumeResponse](t, "CreateVolume")(controller().CreateVolume(deadline(t), &csiv0.CreateVolumeRequest{
		Name: name, CapacityRange: &csiv0.CapacityRange{RequiredBytes: k.sizeBytes},
		VolumeCapabilities: []*csiv0.VolumeCapability{k.capability()}, Parameters: k.parameters,
	}))
	return newLive(t, k, name, r.GetVolume().GetId(), r.GetVolume().GetAttributes())
}

// newLive is a volume that was made, and where it will be used.
func newLive(t *testing.T, k kind, name, id string, attributes map[string]string) *live {
	t.Helper()
	node := must[*csiv0.NodeGetIdResponse](t, "NodeGetId")(node().NodeGetId(deadline(t), &csiv0.NodeGetIdRequest{}))
	l := &live{t: t, kind: k, id: id, attrs: attributes, node: node.GetNodeId(), dir: filepath.Join(host.Daemon.Dir, name)}
	for _, dir := range []string{l.staging(), filepath.Dir(l.target())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *live) staging() string { return filepath.Join(l.dir, "staging") }
func (l *live) target() string  { return filepath.Join(l.dir, "pod", "target") }

func (l *live) publish() {
	l.t.Helper()
	r := must[*csiv0.ControllerPublishVolumeResponse](l.t, "ControllerPublishVolume")(controller().ControllerPublishVolume(deadline(l.t), &csiv0.ControllerPublishVolumeRequest{
		VolumeId: l.id, NodeId: l.node, VolumeCapability: l.kind.capability(), VolumeAttributes: l.attrs}))
	l.info = r.GetPublishInfo()
}

func (l *live) stageRequest() *csiv0.NodeStageVolumeRequest {
	return &csiv0.NodeStageVolumeRequest{VolumeId: l.id, PublishInfo: l.info, StagingTargetPath: l.staging(),
		VolumeCapability: l.kind.capability(), VolumeAttributes: l.attrs}
}

func (l *live) stage() {
	l.t.Helper()
	must[*csiv0.NodeStageVolumeResponse](l.t, "NodeStageVolume")(node().NodeStageVolume(deadline(l.t), l.stageRequest()))
}

func (l *live) nodePublish() {
	l.t.Helper()
	must[*csiv0.NodePublishVolumeResponse](l.t, "NodePublishVolume")(node().NodePublishVolume(deadline(l.t), &csiv0.NodePublishVolumeRequest{
		VolumeId: l.id, PublishInfo: l.info, StagingTargetPath: l.staging(), TargetPath: l.target(),
		VolumeCapability: l.kind.capability(), VolumeAttributes: l.attrs}))
}

func (l *live) nodeUnpublish() {
	l.t.Helper()
	must[*csiv0.NodeUnpublishVolumeResponse](l.t, "NodeUnpublishVolume")(node().NodeUnpublishVolume(deadline(l.t), &csiv0.NodeUnpublishVolumeRequest{
		VolumeId: l.id, TargetPath: l.target()}))
}

func (l *live) unstage() {
	l.t.Helper()
	must[*csiv0.NodeUnstageVolumeResponse](l.t, "NodeUnstageVolume")(node().NodeUnstageVolume(deadline(l.t), &csiv0.NodeUnstageVolumeRequest{
		VolumeId: l.id, StagingTargetPath: l.staging()}))
}

func (l *live) unpublish() {
	l.t.Helper()
	must[*csiv0.ControllerUnpublishVolumeResponse](l.t, "ControllerUnpublishVolume")(controller().ControllerUnpublishVolume(deadline(l.t), &csiv0.ControllerUnpublishVolumeRequest{
		VolumeId: l.id, NodeId: l.node}))
}

func (l *live) remove() {
	l.t.Helper()
	must[*csiv0.DeleteVolumeResponse](l.t, "DeleteVolume")(controller().DeleteVolume(deadline(l.t), &csiv0.DeleteVolumeRequest{VolumeId: l.id}))
}

// up takes a new volume to where a pod can use it; down takes it away.
func (l *live) up() {
	l.t.Helper()
	l.publish()
	l.stage()
	l.nodePublish()
}

func (l *live) down() {
	l.t.Helper()
	l.nodeUnpublish()
	l.unstage()
	l.unpublish()
	l.remove()
}

// data is the file, or the device, that a pod would use.
func (l *live) data() string {
	if l.kind.block {
		return l.target()
	}
	return filepath.Join(l.target(), "data")
}
