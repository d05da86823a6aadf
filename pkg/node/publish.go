package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// Publish shows a staged volume at a target path: a directory with its
// filesystem, or a file with its device node. The target path may exist, empty,
// or be missing.
//
// It binds nothing but the live mount, or the attached disk, of this volume: a
// staging path that is a plain directory would let the workload write to the
// node's own disk. Published there already with the same arguments is a
// success.
//
// A block volume is published read-only by making the device itself refuse
// writes, since the kernel lets them pass through a read-only bind of a device
// node; so it cannot be published read-only and writable at once.
//
// Errors: fault.Exists when the target path is taken, by this volume with other
// arguments or by anything else; fault.Precondition when the volume is not
// staged, or is published elsewhere on this node in a mode that forbids it.
func (s *Service) Publish(ctx context.Context, r PublishRequest) error {
	if err := r.check(); err != nil {
		return err
	}
	return s.do(ctx, "NodePublishVolume", r.VolumeID, r.TargetPath, s.server(r.VolumeID), func(ctx context.Context) error {
		return s.publish(ctx, &r)
	})
}

// publication is one publish: the record to be, and what is bound.
type publication struct {
	publishRecord
	// source is the staging path, or the device.
	source string
	// bindReadOnly is what the mount table must show at the target path.
	bindReadOnly bool
	staged       *stageRecord
	// madeTarget and bound are what a failed publish takes back.
	madeTarget, bound bool
}

func (s *Service) publish(ctx context.Context, r *PublishRequest) error {
	p, err := s.newPublication(ctx, r)
	if err != nil {
		return err
	}
	if at, err := s.records.stagesAt(p.TargetPath); err != nil {
		return err
	} else if len(at) > 0 {
		return fault.New(fault.Exists, "%s is the staging path of volume %s: publish elsewhere", p.TargetPath, at[0].VolumeID)
	}
	old, err := s.records.publish(p.VolumeID, p.TargetPath)
	if err != nil {
		return err
	}
	here, err := s.Mounter.At(ctx, p.TargetPath)
	if err != nil {
		return err
	}
	if len(here) > 0 {
		done, err := s.published(p, old, here)
		if err != nil {
			return err
		}
		if done {
			return s.keep(ctx, p, old)
		}
	}
	if err := s.besides(ctx, p); err != nil {
		return err
	}
	if len(here) > 0 {
		if err := s.unmount(ctx, p.TargetPath); err != nil {
			return err
		}
		s.Log.WithFields(map[string]any{"volume": p.VolumeID, "target": p.TargetPath}).Warn("published volume is bound anew")
	}
	if err := s.bind(ctx, p); err != nil {
		return s.takeBackPublish(ctx, p, err)
	}
	return nil
}

// keep ends a publish that was done before. Whether its device is read-only,
// the mount table does not show: where the record is lost, it is made so.
func (s *Service) keep(ctx context.Context, p *publication, old *publishRecord) error {
	if old != nil {
		p.Version, p.DeviceReadOnly = old.Version, old.DeviceReadOnly
		if *old == p.publishRecord {
			return nil
		}
	}
	if err := s.records.savePublish(&p.publishRecord); err != nil {
		return err
	}
	if old == nil && p.DeviceReadOnly {
		return s.Host.SetReadOnly(ctx, p.source, true)
	}
	return nil
}

// newPublication finds what is to be bound, and refuses a volume that is not
// staged as the request wants it.
func (s *Service) newPublication(ctx context.Context, r *PublishRequest) (*publication, error) {
	p := &publication{
		publishRecord: publishRecord{
			VolumeID: r.VolumeID, TargetPath: r.TargetPath,
			Type: r.Capability.Type.String(), Mode: r.Capability.Mode,
			ReadOnly: r.ReadOnly || r.Capability.Mode.ReaderOnly(),
			Boot:     s.boot,
		},
	}
	staged, known, err := s.stagedVolume(r)
	if err != nil {
		return nil, err
	}
	p.staged = staged
	fsType := r.Capability.FSType
	switch {
	case staged.Type != p.Type:
		return nil, fault.New(fault.Precondition, "volume %s is staged as %s and cannot be published as %s: stage it so first", p.VolumeID, staged.Type, p.Type)
	case fsType != "" && !p.block() && fsType != staged.FSType && !(isNFS(fsType) && staged.FSType == fsTypeNFS):
		return nil, fault.New(fault.Precondition, "volume %s is staged with fs type %s and cannot be published with another: stage it so first", p.VolumeID, staged.FSType)
	}
	p.FSType = staged.FSType
	d, attached, err := s.find(ctx, staged)
	if err != nil {
		return nil, err
	}
	if !attached {
		return nil, s.notStaged(p, "its disk is not attached")
	}
	if p.block() {
		// The mount table names the node, never a link to it.
		if p.source, err = filepath.EvalSymlinks(d.Path); err != nil {
			return nil, s.notStaged(p, "its device is gone")
		}
		p.Major, p.Minor = int(d.Major), int(d.Minor)
		p.DeviceReadOnly = p.ReadOnly && !staged.WriteProtected
	} else {
		here, err := s.Mounter.At(ctx, r.StagingPath)
		if err != nil {
			return nil, err
		}
		if err := s.bindable(p, here); err != nil {
			return nil, err
		}
		top := here[len(here)-1]
		p.source = r.StagingPath
		p.Major, p.Minor, p.Root = top.Major, top.Minor, top.Root
		p.bindReadOnly = p.ReadOnly || top.ReadOnly()
	}
	if !known {
		err = s.records.saveStage(staged)
	}
	return p, err
}

// stagedVolume returns what is staged at the staging path, from its record, or
// where that is lost from the publish context; what is mounted decides whether
// it is so.
func (s *Service) stagedVolume(r *PublishRequest) (staged *stageRecord, known bool, err error) {
	staged, err = s.records.stage(r.VolumeID, r.StagingPath)
	if err != nil || staged != nil {
		return staged, true, err
	}
	if len(r.PublishContext) == 0 {
		return nil, false, fault.New(fault.Precondition, "volume %s is not staged at %s: stage it first", r.VolumeID, r.StagingPath)
	}
	w, _, err := s.wanted(r.VolumeID, r.StagingPath, r.Capability, r.PublishContext, r.VolumeContext)
	if err != nil {
		return nil, false, err
	}
	return &w.stageRecord, false, nil
}

func (s *Service) notStaged(p *publication, why string) error {
	return fault.New(fault.Precondition, "volume %s cannot be published at %s, %s: unstage it and stage it again", p.VolumeID, p.TargetPath, why)
}

// bindable refuses a staging path that is not the live mount of the volume.
// find has been asked, so staged holds the device as it is now, and a mount of
// the one that it was before is not taken for it.
func (s *Service) bindable(p *publication, here []mount.Info) error {
	if len(here) == 0 {
		return s.notStaged(p, "nothing is mounted at "+p.staged.StagingPath)
	}
	top := here[len(here)-1]
	switch {
	case !s.shows(top, p.staged):
		return s.notStaged(p, fmt.Sprintf("%s holds a mount of %s", p.staged.StagingPath, top.Source))
	case diskFSTypes[p.staged.FSType] && top.FSType != p.staged.FSType:
		return s.notStaged(p, "it is mounted as "+top.FSType)
	case !p.staged.ReadOnly && !p.ReadOnly && readOnlyNow(top):
		return s.notStaged(p, "its filesystem has become read-only")
	}
	return nil
}

// bind makes the target path and binds the volume there. The record comes
// first.
func (s *Service) bind(ctx context.Context, p *publication) error {
	if err := s.records.savePublish(&p.publishRecord); err != nil {
		return err
	}
	var err error
	if p.madeTarget, err = s.prepareTarget(p.TargetPath, p.block()); err != nil {
		return err
	}
	if p.DeviceReadOnly {
		if err := s.Host.SetReadOnly(ctx, p.source, true); err != nil {
			return err
		}
	}
	p.bound = true
	if err := s.Mounter.Bind(ctx, p.source, p.TargetPath, p.bindReadOnly); err != nil {
		return err
	}
	here, err := s.Mounter.At(ctx, p.TargetPath)
	if err != nil {
		return err
	}
	if len(here) != 1 || !s.is(here[0], &p.publishRecord) || !p.block() && bindReadOnly(here[0]) != p.bindReadOnly {
		return s.notStaged(p, "what was bound is not the volume")
	}
	return nil
}

// takeBackPublish undoes what a publish that failed with cause began, and
// returns cause.
func (s *Service) takeBackPublish(ctx context.Context, p *publication, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	if err := s.undoPublish(ctx, p); err != nil {
		return fmt.Errorf("%w; what had been begun could not be taken back: %v; unpublish the volume, or repeat the call", cause, err)
	}
	return cause
}

func (s *Service) undoPublish(ctx context.Context, p *publication) error {
	if p.bound {
		// Nothing was mounted there before, so whatever is there now is ours.
		if err := s.unmount(ctx, p.TargetPath); err != nil {
			return err
		}
	}
	if p.madeTarget {
		if err := s.removeTarget(p.TargetPath); err != nil {
			return err
		}
	}
	if err := s.writableAgain(ctx, &p.publishRecord); err != nil {
		return err
	}
	return s.records.removePublish(p.VolumeID, p.TargetPath)
}

// mayShare reports whether a mode allows several target paths on one node.
func mayShare(m access.Mode) bool { return m.MultiNode() || m == access.SingleNodeMultiWriter }
