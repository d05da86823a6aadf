package inprocess

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// storageMutants have a broken part on the storage host.
var storageMutants = []mutant{
	// A volume that the host still serves cannot be deleted.
	{"an NFS export is never closed", "cleanup/everything-can-be-undone", overNFS, exporter(volume.NFS)},
	{"a target is never closed", "cleanup/everything-can-be-undone", asExt4, exporter(volume.ISCSI)},
	{"publications are not stored", "publish/published-volume-is-not-deleted", asExt4,
		inZFS(func(z volume.ZFS) volume.ZFS { return setsNothing{z} })},
	{"publications are not forgotten", "unpublish/volume-moves-to-another-node", asExt4,
		inZFS(func(z volume.ZFS) volume.ZFS { return inheritsNothing{z} })},
	{"a dataset that exists is taken for made", "create/repeat-with-other-parameters-already-exists", asBlock,
		inZFS(func(z volume.ZFS) volume.ZFS { return takesWhatIsThere{z} })},
	{"nothing is destroyed", "delete/deleted-volume-is-not-listed", asBlock,
		inZFS(func(z volume.ZFS) volume.ZFS { return destroysNothing{z} })},
	{"the last volume is not listed", "list/all-volumes-with-their-attributes", overNFS,
		inZFS(func(z volume.ZFS) volume.ZFS { return losesOne{z} })},
	{"a second node takes the volume from the first", "publish/second-node-is-refused-naming-the-first", asExt4,
		unpublishesBefore(func(req proto.Message) string {
			r, _ := req.(*csiv0.ControllerPublishVolumeRequest)
			return r.GetVolumeId()
		})},
	{"capacity is below zero", "capacity/is-never-negative", overNFS, func(p *Parts) { p.Host = overdrawn{p.Host} }},
	{"the server of exports is down", "identity/probe-of-a-healthy-plugin-is-ok", overNFS,
		func(p *Parts) { p.Exporters[volume.NFS] = down{p.Exporters[volume.NFS]} }},
}

// nodeMutants have a broken part on the node.
var nodeMutants = []mutant{
	{"what is mounted is mounted again", "stage/repeat-is-ok-and-stacks-nothing", overNFS,
		func(p *Parts) { p.Mounter = blind{p.Mounter} }},
	{"an unmount is only promised", "stage/unstage-leaves-no-mount", overNFS,
		func(p *Parts) { p.Mounter = promises{p.Mounter} }},
	{"every disk is formatted", "lifecycle/data-survives-unstage-and-stage", asExt4,
		func(p *Parts) { p.Filesystems = eager{p.Filesystems.(filesystems)} }},
	{"the disk of another volume is attached", "lifecycle/data-survives-a-new-controller-publish", asBlock,
		func(p *Parts) { p.Attachers[volume.ISCSI] = wipes{p.Attachers[volume.ISCSI].(initiator)} }},
}

func inZFS(wrap func(volume.ZFS) volume.ZFS) func(*Parts) {
	return func(p *Parts) { p.ZFS = wrap(p.ZFS) }
}

// leavesOpen ignores whoever lost a grant.
type leavesOpen struct{ export.Exporter }

func exporter(protocol string) func(*Parts) {
	return func(p *Parts) { p.Exporters[protocol] = leavesOpen{p.Exporters[protocol]} }
}

func (e leavesOpen) Ensure(ctx context.Context, v export.Volume) error {
	if len(v.Grants) == 0 {
		return nil
	}
	return e.Exporter.Ensure(ctx, v)
}

func (leavesOpen) Remove(context.Context, string) error { return nil }

type down struct{ export.Exporter }

func (down) Ready(context.Context) error { return errors.New("down") }

type setsNothing struct{ volume.ZFS }

func (setsNothing) Set(context.Context, string, zfs.Setting) error { return nil }

type inheritsNothing struct{ volume.ZFS }

func (inheritsNothing) Inherit(context.Context, string, string) error { return nil }

type takesWhatIsThere struct{ volume.ZFS }

func (z takesWhatIsThere) Create(ctx context.Context, s zfs.Spec) error {
	err := z.ZFS.Create(ctx, s)
	if errors.Is(err, zfs.ErrExists) {
		return nil
	}
	return err
}

type destroysNothing struct{ volume.ZFS }

func (destroysNothing) Destroy(context.Context, string) error { return nil }

type losesOne struct{ volume.ZFS }

func (z losesOne) Children(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	list, err := z.ZFS.Children(ctx, parent)
	return list[:max(0, len(list)-1)], err
}

type overdrawn struct{ volume.Host }

func (overdrawn) Available(context.Context, string) (int64, error) { return -1, nil }

// blind sees no mount where it is asked for one place.
type blind struct{ node.Mounter }

func (blind) At(context.Context, string) ([]mount.Info, error) { return nil, nil }

// promises unmounts nothing and hides what it has promised.
type promises struct{ node.Mounter }

func (promises) Unmount(context.Context, string) error { return nil }

type eager struct{ filesystems }

func (e eager) Probe(context.Context, string) (mount.Content, error) {
	return mount.Content{Blank: true}, nil
}

func (e eager) Format(_ context.Context, device, fsType string, _ []string, _ bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, _, err := e.disk(device)
	if err == nil {
		d.Format(fsType)
	}
	return err
}

// wipes gives up what is on a disk with its session.
type wipes struct{ initiator }

func (w wipes) Detach(ctx context.Context, t attach.Target) error {
	w.mu.Lock()
	if s := w.sessions[t.IQN]; s != nil {
		if d, err := w.reach(s); err == nil {
			w.storage.Disk(d.Device).Format("")
		}
	}
	w.mu.Unlock()
	return w.initiator.Detach(ctx, t)
}
