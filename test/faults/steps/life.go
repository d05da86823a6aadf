package steps

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Use is one way in which volumes are used.
type Use struct {
	Name   string
	FSType string
	Block  bool
	// Parameters are those of every volume.
	Parameters map[string]string
	// NodeOnly says that the controller's calls are those of another use.
	NodeOnly bool
}

// Disturbs says whether a call is tried with this use.
func (u Use) Disturbs(call string) bool { return !u.NodeOnly || strings.HasPrefix(call, "Node") }

// Uses are the ways in which the steps are tried.
var Uses = []Use{
	{Name: "nfs", Parameters: map[string]string{"protocol": "nfs", "mode": "2770", "thin": "false"}},
	{Name: "iscsi-ext4", FSType: "ext4", Parameters: map[string]string{"protocol": "iscsi"}},
	{Name: "iscsi-block", Block: true, NodeOnly: true, Parameters: map[string]string{"protocol": "iscsi"}},
}

func (u Use) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER}}
	if u.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: u.FSType}}
	}
	return c
}

// call is one RPC of a life. It may be made again.
type call struct {
	name string
	do   func(context.Context) (proto.Message, error)
	// reconciled says that the call leaves to the next reconcile what it could not
	// end besides its own.
	reconciled bool
	// then is what else is done when it has succeeded, and must succeed too.
	then func(context.Context) error
}

// The sizes of a volume, before and after it is grown.
const (
	sizeBytes  = 64 << 20
	grownBytes = 96 << 20
)

// pool is the pool's name in ids and parameters.
const pool = "tank"

// payload is what a workload writes, which must be there ever after.
var payload = []byte("what a workload has written")

// life is all the RPCs, in an order in which an orchestrator may call them: one
// volume is made, used, copied in every way, grown, and deleted before what was
// made of it.
type life struct {
	world World
	use   Use
	dir   string
	// published are the publish contexts of volumes by name.
	published map[string]map[string]string
	snapshot  string
	group     string
}

func newLife(w World, u Use) *life {
	return &life{world: w, use: u, dir: filepath.Join(w.Dir(), u.Name), published: map[string]map[string]string{}}
}

func (l *life) controller() csi.ControllerClient { return csi.NewControllerClient(l.world.Conn()) }
func (l *life) node() csi.NodeClient             { return csi.NewNodeClient(l.world.Conn()) }
func (l *life) groups() csi.GroupControllerClient {
	return csi.NewGroupControllerClient(l.world.Conn())
}

func id(volume string) string { return pool + "/" + volume }

func (l *life) staging(volume string) string { return filepath.Join(l.dir, volume, "staging") }
func (l *life) target(volume string) string  { return filepath.Join(l.dir, volume, "target") }

// calls returns the life.
func (l *life) calls(brief bool) []call {
	const v = "v"
	list := []call{
		l.create("CreateVolume", v, nil, ""),
		l.publish(v), l.stage(v), l.nodePublish(v, l.write(v)),
		{name: "CreateSnapshot", do: l.takeSnapshot(v)},
		l.create("CreateVolume from a snapshot", "restored", l.fromSnapshot, ""),
		l.create("CreateVolume from a volume", "cloned", l.fromVolume(v), ""),
		l.create("CreateVolume by a full copy", "copied", l.fromSnapshot, "full"),
		{name: "CreateVolumeGroupSnapshot", do: l.takeGroup(v, "cloned")},
		{name: "DeleteVolumeGroupSnapshot", do: l.deleteGroup()},
		{name: "ControllerModifyVolume", do: l.modify(v)},
		{name: "ControllerExpandVolume", do: l.expand(v)},
		{name: "NodeExpandVolume", do: l.nodeExpand(v), then: l.read(v)},
		l.nodeUnpublish(v), l.unstage(v), l.unpublish(v),
	}
	for _, made := range []string{"restored", "cloned", "copied"} {
		if brief {
			break
		}
		list = append(list, l.used(made)...)
	}
	return append(list,
		l.delete("DeleteVolume with dependents", v), l.delete("DeleteVolume of a clone", "cloned"),
		l.delete("DeleteVolume", "copied"),
		call{name: "DeleteSnapshot with a clone", reconciled: true, do: l.deleteSnapshot},
		l.delete("DeleteVolume, the last of a tree", "restored"))
}

// used brings a volume up, reads what its source held, and takes it down. Its
// calls have no names: they are not interrupted, since others are the same.
func (l *life) used(volume string) []call {
	list := []call{l.publish(volume), l.stage(volume), l.nodePublish(volume, l.read(volume)), l.nodeUnpublish(volume), l.unstage(volume), l.unpublish(volume)}
	for k := range list {
		list[k].name = ""
	}
	return list
}

func (l *life) create(name, volume string, source func() *csi.VolumeContentSource, mode string) call {
	return call{name: name, do: func(ctx context.Context) (proto.Message, error) {
		r := &csi.CreateVolumeRequest{
			Name: volume, VolumeCapabilities: []*csi.VolumeCapability{l.use.capability()}, Parameters: map[string]string{},
			CapacityRange: &csi.CapacityRange{RequiredBytes: sizeBytes},
		}
		if source != nil {
			r.VolumeContentSource = source()
		}
		for k, v := range l.use.Parameters {
			r.Parameters[k] = v
		}
		if mode != "" {
			r.Parameters["cloneMode"] = mode
		}
		return l.controller().CreateVolume(ctx, r)
	}}
}

func (l *life) fromSnapshot() *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: l.snapshot}}}
}

func (l *life) fromVolume(volume string) func() *csi.VolumeContentSource {
	return func() *csi.VolumeContentSource {
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id(volume)}}}
	}
}

func (l *life) publish(volume string) call {
	return call{name: "ControllerPublishVolume", do: func(ctx context.Context) (proto.Message, error) {
		r, err := l.controller().ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: id(volume), NodeId: l.world.NodeID(), VolumeCapability: l.use.capability()})
		l.published[volume] = r.GetPublishContext()
		return r, err
	}}
}

func (l *life) unpublish(volume string) call {
	return call{name: "ControllerUnpublishVolume", do: func(ctx context.Context) (proto.Message, error) {
		return l.controller().ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: id(volume), NodeId: l.world.NodeID()})
	}}
}

func (l *life) stage(volume string) call {
	return call{name: "NodeStageVolume", do: func(ctx context.Context) (proto.Message, error) {
		if err := os.MkdirAll(l.staging(volume), 0o750); err != nil {
			return nil, err
		}
		return l.node().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId: id(volume), PublishContext: l.published[volume], StagingTargetPath: l.staging(volume), VolumeCapability: l.use.capability()})
	}}
}

func (l *life) unstage(volume string) call {
	return call{name: "NodeUnstageVolume", do: func(ctx context.Context) (proto.Message, error) {
		return l.node().NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id(volume), StagingTargetPath: l.staging(volume)})
	}}
}

func (l *life) nodePublish(volume string, then func(context.Context) error) call {
	return call{name: "NodePublishVolume", then: then, do: func(ctx context.Context) (proto.Message, error) {
		return l.node().NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId: id(volume), PublishContext: l.published[volume], StagingTargetPath: l.staging(volume),
			TargetPath: l.target(volume), VolumeCapability: l.use.capability()})
	}}
}

func (l *life) nodeUnpublish(volume string) call {
	return call{name: "NodeUnpublishVolume", do: func(ctx context.Context) (proto.Message, error) {
		return l.node().NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id(volume), TargetPath: l.target(volume)})
	}}
}

func (l *life) takeSnapshot(volume string) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		r, err := l.controller().CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id(volume)})
		if err == nil {
			l.snapshot = r.GetSnapshot().GetSnapshotId()
		}
		return r, err
	}
}

func (l *life) deleteSnapshot(ctx context.Context) (proto.Message, error) {
	return l.controller().DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: l.snapshot})
}

func (l *life) takeGroup(volumes ...string) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		r := &csi.CreateVolumeGroupSnapshotRequest{Name: "g"}
		for _, v := range volumes {
			r.SourceVolumeIds = append(r.SourceVolumeIds, id(v))
		}
		g, err := l.groups().CreateVolumeGroupSnapshot(ctx, r)
		if err == nil {
			l.group = g.GetGroupSnapshot().GetGroupSnapshotId()
		}
		return g, err
	}
}

func (l *life) deleteGroup() func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		return l.groups().DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: l.group})
	}
}

func (l *life) modify(volume string) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		return l.controller().ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
			VolumeId: id(volume), MutableParameters: map[string]string{"zfs.compression": "zstd", "zfs.sync": "always"}})
	}
}

func (l *life) expand(volume string) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		return l.controller().ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: id(volume), CapacityRange: &csi.CapacityRange{RequiredBytes: grownBytes}, VolumeCapability: l.use.capability()})
	}
}

func (l *life) nodeExpand(volume string) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		return l.node().NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId: id(volume), VolumePath: l.target(volume), StagingTargetPath: l.staging(volume),
			CapacityRange: &csi.CapacityRange{RequiredBytes: grownBytes}, VolumeCapability: l.use.capability()})
	}
}

func (l *life) delete(name, volume string) call {
	return call{name: name, reconciled: true, do: func(ctx context.Context) (proto.Message, error) {
		return l.controller().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id(volume)})
	}}
}

func (l *life) write(volume string) func(context.Context) error {
	return func(context.Context) error { return l.world.Write(l.target(volume), l.use.Block, payload) }
}

func (l *life) read(volume string) func(context.Context) error {
	return func(context.Context) error {
		got, err := l.world.Read(l.target(volume), l.use.Block, len(payload))
		if err == nil && !bytes.Equal(got, payload) {
			err = fmt.Errorf("%s holds %q, and %q was written", volume, got, payload)
		}
		return err
	}
}
