package volume

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// SnapshotFilter restricts a listing; an empty field does not.
type SnapshotFilter struct{ SnapshotID, VolumeID string }

// ListSnapshots returns the snapshots of all pools by id that the filter lets
// pass, at most limit of them (zero: all), after the one that token names, and
// the token of the next page. A filter that names nothing finds nothing.
//
// fault.Aborted for a token that ListSnapshots did not make.
func (s *Service) ListSnapshots(ctx context.Context, f SnapshotFilter, limit int, token string) ([]Snapshot, string, error) {
	if limit < 0 {
		return nil, "", fault.New(fault.Invalid, "max_entries must not be negative: %d", limit)
	}
	if token != "" {
		if _, err := s.parseSnapshot(token); err != nil {
			return nil, "", fault.New(fault.Aborted, "starting_token %q is not one of this driver: list again from the start", ident.Printable(token))
		}
	}
	all, err := s.filtered(ctx, f)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return strings.Compare(a.ID, b.ID) })
	from, found := slices.BinarySearchFunc(all, token, func(n Snapshot, id string) int { return strings.Compare(n.ID, id) })
	if found {
		from++
	}
	all = all[from:]
	if limit == 0 || len(all) <= limit {
		return all, "", nil
	}
	return all[:limit], all[limit-1].ID, nil
}

// filtered reads one snapshot where the filter names one, and lists one pool or
// all of them where it does not.
func (s *Service) filtered(ctx context.Context, f SnapshotFilter) ([]Snapshot, error) {
	if f.SnapshotID != "" {
		n, err := s.GetSnapshot(ctx, f.SnapshotID)
		if err != nil {
			return nil, okIfUnknown(err)
		}
		if f.VolumeID != "" && f.VolumeID != n.VolumeID {
			return nil, nil
		}
		return []Snapshot{n}, nil
	}
	pools := s.order
	if f.VolumeID != "" {
		id, err := s.parse(f.VolumeID)
		if err != nil {
			return nil, okIfUnknown(err)
		}
		pools = []string{id.Pool}
	}
	var all []Snapshot
	for _, name := range pools {
		list, err := s.listSnapshots(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if f.VolumeID == "" || f.VolumeID == n.id.Volume.String() {
				all = append(all, n.snapshot())
			}
		}
	}
	return all, nil
}

// listSnapshots reads the orchestrator's snapshots of one pool, with one
// command.
func (s *Service) listSnapshots(ctx context.Context, name string) ([]*snapshot, error) {
	p, err := s.pool(name)
	if err != nil {
		return nil, err
	}
	var list []*snapshot
	err = s.read(ctx, "ListSnapshots", name, func(ctx context.Context) error {
		datasets, err := s.cfg.ZFS.Snapshots(ctx, p.cfg.Parent)
		if err != nil {
			return ofParent(err, "list the snapshots of pool %q", name)
		}
		for _, d := range datasets {
			id, ok := p.snapshotID(d.Name)
			if !ok {
				continue
			}
			if n, ours := readSnapshot(id, d); ours {
				if n.err != nil {
					s.log(id.Volume).WithError(n.err).Error("a snapshot is not usable")
				}
				list = append(list, n)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err // the operation may still run, and append
	}
	return list, nil
}

// snapshotID is the id of a snapshot by its full name, of a volume or of a
// tombstone; false for what no orchestrator can have named, such as a hidden
// one.
func (p *pool) snapshotID(full string) (ident.SnapshotID, bool) {
	dataset, name, _ := cutSnapshot(full)
	volume, ok := p.volumeOf(dataset)
	if !ok || !ident.ValidComponent(name) {
		return ident.SnapshotID{}, false
	}
	return ident.SnapshotID{Volume: volume, Component: name}, true
}

// volumeOf is the id that the volume of a dataset has or, as a tombstone, had;
// false for other datasets.
func (p *pool) volumeOf(dataset string) (ident.VolumeID, bool) {
	component := strings.TrimPrefix(dataset, p.cfg.Parent+"/")
	if name, buried := strings.CutPrefix(dataset, p.dataset(tombstones)+"/"); buried {
		component = tombstoneOf(name)
	}
	return ident.VolumeID{Pool: p.cfg.Name, Component: component}, ident.ValidComponent(component)
}
