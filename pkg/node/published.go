package node

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// bindReadOnly reports whether nothing can be written through this mount point.
func bindReadOnly(i mount.Info) bool { return slices.Contains(i.Options, "ro") }

// gone is what the kernel puts behind the path of a bind whose source has been
// removed: proc(5), and fs/d_path.c.
const gone = "//deleted"

// is reports whether a line of the mount table is what a publish record says
// was bound.
func (s *Service) is(i mount.Info, r *publishRecord) bool {
	if r.Boot != s.boot {
		return false
	}
	if !r.block() {
		// The number of a filesystem without a disk may be another's by now.
		sameType := i.FSType == r.FSType || isNFS(i.FSType) && r.FSType == fsTypeNFS
		return sameType && i.Major == r.Major && i.Minor == r.Minor && i.Root == r.Root
	}
	if !bindsNode(i) {
		return false
	}
	major, minor, err := s.Host.DeviceNumber(i.Target)
	return err == nil && major == r.Major && minor == r.Minor
}

// published judges what is mounted at the target path. done means that it is
// what the publish would make; without done and error it is the volume's but
// dead or stacked, and must be bound anew.
func (s *Service) published(p *publication, old *publishRecord, here []mount.Info) (done bool, err error) {
	for _, i := range here {
		ours := old != nil && s.is(i, old) || s.is(i, &p.publishRecord) || s.shows(i, p.staged) || s.showsNode(i, p.staged)
		if !ours {
			return false, s.taken(p, i)
		}
	}
	top := here[len(here)-1]
	live := s.is(top, &p.publishRecord) && !strings.HasSuffix(top.Root, gone)
	sameAccess := p.block() || bindReadOnly(top) == p.bindReadOnly
	switch {
	case old != nil && old.differs(&p.publishRecord) != "":
		return false, s.differently(p, old.differs(&p.publishRecord))
	case old == nil && p.block() != bindsNode(top):
		return false, s.differently(p, "access type")
	case old == nil && live && !sameAccess:
		return false, s.differently(p, "readonly")
	}
	return live && sameAccess && len(here) == 1, nil
}

func (s *Service) differently(p *publication, field string) error {
	return fault.New(fault.Exists, "volume %s is published at %s with another %s: unpublish it first", p.VolumeID, p.TargetPath, field)
}

// taken says what else is at the target path.
func (s *Service) taken(p *publication, i mount.Info) error {
	all, err := s.records.publishesAt(p.TargetPath)
	if err != nil {
		return err
	}
	for _, other := range all {
		if s.is(i, other) {
			return fault.New(fault.Exists, "volume %s is published at %s: unpublish it first", other.VolumeID, p.TargetPath)
		}
	}
	return fault.New(fault.Exists, "%s holds a %s mount of %s, not volume %s: publish elsewhere, or unmount it", p.TargetPath, i.FSType, i.Source, p.VolumeID)
}

// besides looks at the volume's other publications on this node: whether the
// modes allow one more, and whether a block device can be both.
//
// Only records with their mount count. A mount of the volume without a record
// may be the orchestrator's own bind of a target path, as kubelets make them.
func (s *Service) besides(ctx context.Context, p *publication) error {
	others, stale, err := s.others(ctx, &p.publishRecord)
	if err != nil {
		return err
	}
	for _, o := range others {
		switch {
		case !mayShare(p.Mode) || !mayShare(o.Mode):
			return fault.New(fault.Precondition, "volume %s is published at %s, and its access mode (%s) allows one target path: unpublish it there first",
				p.VolumeID, o.TargetPath, p.Mode)
		case p.block() && p.ReadOnly != o.ReadOnly:
			return fault.New(fault.Precondition,
				"block volume %s is published at %s with another readonly, and its device can only be one: unpublish it there first", p.VolumeID, o.TargetPath)
		}
	}
	if p.block() && !p.ReadOnly && slices.ContainsFunc(stale, func(o *publishRecord) bool { return o.DeviceReadOnly }) {
		// Its unmount was the last that was done of an unpublish.
		return s.Host.SetReadOnly(ctx, p.source, false)
	}
	return nil
}

// others returns the volume's publications at other target paths, and those of
// its records that have no mount.
func (s *Service) others(ctx context.Context, r *publishRecord) (others, stale []*publishRecord, err error) {
	all, err := s.records.publishes(r.VolumeID)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range all {
		here, err := s.Mounter.At(ctx, o.TargetPath)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case !slices.ContainsFunc(here, func(i mount.Info) bool { return s.is(i, o) }):
			stale = append(stale, o)
		case o.TargetPath != r.TargetPath:
			others = append(others, o)
		}
	}
	return others, stale, nil
}

// writableAgain ends what DeviceReadOnly says, with the last publication that
// needs it. A disk that is not attached has nothing to undo.
func (s *Service) writableAgain(ctx context.Context, r *publishRecord) error {
	if !r.DeviceReadOnly {
		return nil
	}
	others, _, err := s.others(ctx, r)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(o *publishRecord) bool { return o.DeviceReadOnly }) {
		return nil
	}
	staged, err := s.records.stages(r.VolumeID)
	if err != nil {
		return err
	}
	for _, st := range staged {
		if d, attached, err := s.find(ctx, st); err != nil {
			return err
		} else if attached {
			return s.Host.SetReadOnly(ctx, d.Path, false)
		}
	}
	return nil
}
