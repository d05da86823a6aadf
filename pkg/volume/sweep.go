package volume

import (
	"context"
	"errors"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// hidden is a snapshot of the driver's own, which waits for its end.
type hidden struct {
	// name is the full name.
	name string
	// volume is the volume that it is of, or was.
	volume ident.VolumeID
}

// uuid is the end of the name.
func (h hidden) uuid() string { return h.name[strings.LastIndexByte(h.name, '.')+1:] }

// hiddenName reports whether a snapshot is called as a hidden one.
func hiddenName(name string) bool {
	for _, mark := range []string{deletedMark, cloneMark, copyMark} {
		if strings.HasPrefix(name, mark) {
			return true
		}
	}
	return false
}

// needed reports whether the snapshot is the one in between a volume and its
// clone, which the clone keeps, or is being copied, perhaps to another pool.
func (s *Service) needed(p *pool, h hidden) bool {
	_, name, _ := cutSnapshot(h.name)
	if strings.HasPrefix(name, copyMark) {
		for _, other := range s.pools {
			if other.index.needsForCopy(name) {
				return true
			}
		}
	}
	return strings.HasPrefix(name, cloneMark) && p.index.isClone(h.uuid())
}

// sweep ends what calls that were cut off have left behind, and the tombstones
// that nothing needs. What fails is told in the log and tried again by the next
// round.
func (s *Service) sweep(ctx context.Context, p *pool, own []hidden) {
	listed := map[string]bool{}
	for _, h := range own {
		listed[h.uuid()] = true
		if s.needed(p, h) || p.index.waits(h.uuid()) {
			continue
		}
		err := s.endHidden(ctx, p, h)
		if !errors.Is(err, fault.Busy) && s.told.news(h.name, err) {
			s.log(h.volume).WithError(err).WithField("snapshot", h.name).Warn("a snapshot that nobody can ask for any more could not be destroyed yet")
		}
	}
	p.index.gone(listed)
	if err := s.sweepGraves(ctx, p); s.told.news("graves "+p.cfg.Name, err) {
		s.cfg.Log.WithError(err).WithField("pool", p.cfg.Name).Warn("what deleted volumes wait for cannot be read")
	}
}

// endHidden leaves a hidden snapshot to ZFS, which destroys it with the last
// that needs it. Under the volume's lock, no clone is being made of it.
func (s *Service) endHidden(ctx context.Context, p *pool, h hidden) error {
	return s.inBackground(ctx, "destroy hidden snapshot", h.volume.String(), "pool "+p.cfg.Name, func(ctx context.Context) error {
		if s.needed(p, h) {
			return nil
		}
		err := s.cfg.ZFS.DestroyLater(ctx, h.name)
		if errors.Is(err, zfs.ErrNotExist) || errors.Is(err, zfs.ErrNoParent) {
			return nil // it went with its clone, or its volume was renamed since
		}
		if err == nil {
			p.index.leave(h.uuid())
		}
		return err
	})
}
