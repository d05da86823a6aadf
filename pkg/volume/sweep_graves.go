package volume

import (
	"context"
	"errors"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// sweepGraves destroys the tombstones that nothing needs. Whatever their number,
// one listing tells which of them foreign snapshots hold.
func (s *Service) sweepGraves(ctx context.Context, p *pool) error {
	free := p.index.freeGraves()
	if len(free) == 0 {
		return nil
	}
	uses, err := s.graveSnapshots(ctx, p)
	if err != nil {
		return err
	}
	for key, dataset := range free {
		err := s.inBackground(ctx, "destroy tombstone", "tombstone "+key, "pool "+p.cfg.Name, func(ctx context.Context) error {
			if err := s.endForeign(ctx, uses[dataset]); err != nil {
				return err
			}
			s.reap(ctx, p, key)
			return nil
		})
		if !errors.Is(err, errHeld) && s.told.news(dataset, err) {
			s.cfg.Log.WithError(err).WithField("dataset", dataset).Warn("a deleted volume could not be destroyed yet")
		}
	}
	return nil
}

// graveSnapshots lists the snapshots of tombstones, by dataset.
func (s *Service) graveSnapshots(ctx context.Context, p *pool) (map[string][]zfs.Dataset, error) {
	var list []zfs.Dataset
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Operation)
	defer cancel()
	err := s.read(ctx, "list tombstones", p.cfg.Name, func(ctx context.Context) error {
		found, err := s.cfg.ZFS.SnapshotUses(ctx, p.dataset(tombstones))
		if err == nil {
			list = found
		}
		return err
	})
	if err != nil {
		return nil, ofParent(err, "list the snapshots of deleted volumes in pool %q", p.cfg.Name)
	}
	byDataset := map[string][]zfs.Dataset{}
	for _, d := range list {
		dataset, _, _ := cutSnapshot(d.Name)
		byDataset[dataset] = append(byDataset[dataset], d)
	}
	return byDataset, nil
}

// errHeld says that snapshots hold a tombstone.
var errHeld = errors.New("snapshots hold it")

// endForeign destroys the snapshots that alone hold a tombstone, where the
// configuration allows it, and only if all of them can go: as long as one is
// held or cloned the volume stays, and so do the others.
func (s *Service) endForeign(ctx context.Context, snapshots []zfs.Dataset) error {
	for _, d := range snapshots {
		_, name, _ := cutSnapshot(d.Name)
		if !s.cfg.DeleteForeignSnapshots || hiddenName(name) || len(d.Clones()) > 0 || d.Bytes("userrefs") > 0 {
			return errHeld
		}
	}
	for _, d := range snapshots {
		if err := s.cfg.ZFS.Destroy(ctx, d.Name); err != nil && !errors.Is(err, zfs.ErrNotExist) {
			return describe(err, "destroy the foreign snapshot %s", d.Name)
		}
	}
	return nil
}
