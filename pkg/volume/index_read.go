package volume

import (
	"context"
	"errors"
	"strings"

	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// listing is what the index is made of.
type listing struct {
	volumes   []*record
	snapshots []zfs.Dataset
	graves    []zfs.Dataset
	incoming  []zfs.Dataset
}

// readIndex reads a pool's snapshots and tombstones into its index, and returns
// the hidden snapshots. volumes are those of a listing that began after
// index.begin.
func (s *Service) readIndex(ctx context.Context, p *pool, volumes []*record) ([]hidden, error) {
	l := listing{volumes: volumes}
	err := s.read(ctx, "read index", p.cfg.Name, func(ctx context.Context) error {
		snapshots, err := s.cfg.ZFS.Snapshots(ctx, p.cfg.Parent)
		if err != nil {
			return ofParent(err, "list the snapshots of pool %q", p.cfg.Name)
		}
		graves, err := s.hiddenChildren(ctx, p, tombstones)
		if err != nil {
			return err
		}
		incoming, err := s.hiddenChildren(ctx, p, incoming)
		if err != nil {
			return err
		}
		l.snapshots, l.graves, l.incoming = snapshots, graves, incoming
		return nil
	})
	if err != nil {
		return nil, err // the operation may still run
	}
	c, hidden := l.sort(p)
	p.index.load(c)
	return hidden, nil
}

// hiddenChildren lists a place below the parent that is made when it is needed.
func (s *Service) hiddenChildren(ctx context.Context, p *pool, place string) ([]zfs.Dataset, error) {
	list, err := s.cfg.ZFS.Children(ctx, p.dataset(place))
	if errors.Is(err, zfs.ErrNoParent) {
		return nil, nil
	}
	return list, ofParent(err, "list %s of pool %q", place, p.cfg.Name)
}

// sort makes the index's contents of a listing.
func (l listing) sort(p *pool) (contents, []hidden) {
	c := contents{
		snapshots: map[ident.SnapshotID]place{}, names: map[string]ident.SnapshotID{},
		graves: map[string]*record{}, origins: map[string]string{}, copies: map[ident.VolumeID]bool{},
		expected: map[ident.VolumeID]bool{},
	}
	uuids := map[string]string{} // by dataset
	note := func(r *record) {
		uuids[r.dataset.Name] = r.uuid
		if r.source.Origin != "" {
			c.origins[r.uuid] = r.source.Origin
		}
	}
	for _, r := range l.volumes {
		note(r)
		if r.source != (source{}) {
			c.copies[r.id] = true
		}
	}
	for _, d := range l.graves {
		id, ok := p.volumeOf(d.Name)
		if !ok {
			continue
		}
		if r, ours := readRecord(id, d); ours {
			note(r)
			c.graves[r.key()] = r
		}
	}
	for _, d := range l.incoming {
		whole, _ := zfs.PartialOf(d.Name) // else the name as it is
		component := strings.TrimPrefix(whole, p.dataset(incoming)+"/")
		c.expected[ident.VolumeID{Pool: p.cfg.Name, Component: component}] = true
	}
	var own []hidden
	for _, d := range l.snapshots {
		dataset, name, _ := cutSnapshot(d.Name)
		volume, ok := p.volumeOf(dataset)
		if !ok {
			continue
		}
		if hiddenName(name) {
			own = append(own, hidden{name: d.Name, volume: volume})
			continue
		}
		id, ok := p.snapshotID(d.Name)
		if !ok {
			continue
		}
		if n, ours := readSnapshot(id, d); ours {
			at := n.place()
			at.uuid = uuids[dataset]
			c.snapshots[id] = at
			if at.group == "" {
				c.names[id.Component] = id
			}
		}
	}
	return c, own
}
