package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Removable returns what RemoveOrphans would remove.
func Removable(list []Orphan) []Orphan {
	var some []Orphan
	for _, o := range list {
		if o.Removal == RemovalYes || o.Removal == RemovalStopped {
			some = append(some, o)
		}
	}
	return some
}

// RemoveOrphans removes what an earlier Orphans has listed, if it is an orphan
// still. What the daemon might be working on is removed only while this process
// holds the parents; while another one does, the error says so, and everything
// else is removed. Nothing is ever removed with its dependents.
func (s *Service) RemoveOrphans(ctx context.Context, wanted []Orphan) (removed []Orphan, err error) {
	held := s.takeAll()
	now, err := s.Orphans(ctx)
	errs := []error{err}
	still := map[string]Orphan{}
	for _, o := range Removable(now) {
		still[o.Kind+" "+o.Name] = o
	}
	for _, w := range wanted {
		o, ok := still[w.Kind+" "+w.Name]
		if !ok {
			continue // somebody was faster, or it is claimed by now
		}
		err := held
		if o.Removal == RemovalYes || held == nil {
			err = s.removeOrphan(ctx, o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s stays: %w", o.Kind, o.Name, err))
			continue
		}
		removed = append(removed, o)
	}
	return removed, errors.Join(errs...)
}

// takeAll takes every parent, until Close. The error says that a daemon has one.
func (s *Service) takeAll() error {
	for _, name := range s.order {
		if err := s.pools[name].take(s.cfg.LockDir); err != nil {
			return fault.New(kindOr(err, fault.Unavailable), "it can be removed while no daemon serves the pool: %w", err)
		}
	}
	return nil
}

func (s *Service) removeOrphan(ctx context.Context, o Orphan) error {
	switch o.Kind {
	case OrphanExport, OrphanTarget:
		return s.cfg.Exporters[o.protocol].Remove(ctx, o.uuid)
	case OrphanCopy:
		return s.dropIncoming(ctx, o.pool, o.volume)
	}
	d, err := s.cfg.ZFS.Get(ctx, o.Name)
	if errors.Is(err, zfs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return describe(err, "read %s", o.Name)
	}
	err = s.destroy(ctx, &record{id: o.volume, dataset: d})
	if errors.Is(err, zfs.ErrNotExist) {
		return nil
	}
	return describe(err, "destroy %s", o.Name)
}
