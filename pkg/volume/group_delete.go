package volume

import (
	"context"
	"maps"
	"slices"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// DeleteGroup deletes a group with all its members. One that does not exist is a
// success, and one that was deleted in part is completed. snapshotIDs are what
// the caller believes to be the members; none at all are not compared.
//
// fault.Invalid for other members; fault.Precondition while the storage host has
// one of them open.
func (s *Service) DeleteGroup(ctx context.Context, groupID string, snapshotIDs []string) error {
	id, err := s.parseGroup(groupID)
	if err != nil {
		return okIfUnknown(err)
	}
	volumes, err := s.groupVolumes(id, snapshotIDs)
	if err != nil || len(volumes) == 0 {
		return err
	}
	return s.lockGroup(ctx, "DeleteVolumeGroupSnapshot", id, volumes, func(ctx context.Context) error {
		p, err := s.pool(id.Pool)
		if err != nil {
			return err
		}
		now, err := s.groupVolumes(id, snapshotIDs)
		if err != nil {
			return err
		}
		if !slices.Equal(now, volumes) {
			return fault.New(fault.Busy, "group snapshot %s was changed meanwhile: repeat the call", id)
		}
		g, err := s.seenGroup(ctx, p, id, volumes)
		if err != nil && fault.Kind(err) != fault.Precondition {
			return err // what is broken can be deleted
		}
		if g != nil {
			if err := g.consistsOf(snapshotIDs); err != nil {
				return err
			}
		}
		return s.removeGroup(ctx, p, id, volumes)
	})
}

// groupVolumes are the volumes that have members of a group: those that the
// index knows, and those that the caller names, which the index may not know
// when the group's making was cut off.
func (s *Service) groupVolumes(id ident.GroupID, snapshotIDs []string) ([]ident.VolumeID, error) {
	p, err := s.pool(id.Pool)
	if err != nil {
		return nil, err
	}
	members, err := p.index.members(p.cfg.Name, id.Component)
	if err != nil {
		return nil, err
	}
	for _, raw := range snapshotIDs {
		n, err := ident.ParseSnapshotID(raw)
		if err == nil && n == groupSnapshotID(id, n.Volume.Component) {
			members[n] = place{}
		}
	}
	var volumes []ident.VolumeID
	for _, n := range slices.SortedFunc(maps.Keys(members), bySnapshotID) {
		volumes = append(volumes, n.Volume)
	}
	return volumes, nil
}

// removeGroup deletes the members one by one: what was cut off is completed by
// the next call.
func (s *Service) removeGroup(ctx context.Context, p *pool, id ident.GroupID, volumes []ident.VolumeID) error {
	for _, v := range volumes {
		_, n, err := s.findSnapshotToDelete(ctx, groupSnapshotID(id, v.Component))
		if fault.Kind(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.removeSnapshot(ctx, p, n); err != nil {
			return err
		}
		s.reap(ctx, p, n.uuid())
	}
	return nil
}
