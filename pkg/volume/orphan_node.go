package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tarn-csi/tarn/pkg/ident"
)

// Leavings tells what a storage host that is a node, too, has of volumes. It
// changes nothing.
type Leavings interface {
	// Sessions are the targets of this instance to which there are sessions or
	// records that make them, with the volumes' uuids.
	Sessions(ctx context.Context) (map[string]string, error)
	// Staged are the staging paths that stage records name, with the volumes' ids.
	Staged(ctx context.Context) (map[string]string, error)
	// Pods are the ids of volumes that a node's records say are pods' own. known is
	// false where no node keeps such records on this host.
	Pods(ctx context.Context) (ids map[string]bool, known bool, err error)
}

// leavings is what was read of them.
type leavings struct {
	sessions, staged map[string]string
	pods             map[string]bool
	podsKnown        bool
}

func (s *Service) readLeavings(ctx context.Context) (l leavings, err error) {
	if s.cfg.Leavings == nil {
		return l, nil
	}
	var err1, err2, err3 error
	l.sessions, err1 = s.cfg.Leavings.Sessions(ctx)
	l.staged, err2 = s.cfg.Leavings.Staged(ctx)
	l.pods, l.podsKnown, err3 = s.cfg.Leavings.Pods(ctx)
	return l, errors.Join(err1, err2, err3)
}

// orphans are sessions and stage records of volumes that do not exist. The node
// service is the one to remove them: it alone knows what is in use.
func (l leavings) orphans(s *Service, uuids, ids map[string]bool) []Orphan {
	var all []Orphan
	for iqn, uuid := range l.sessions {
		if !uuids[uuid] {
			all = append(all, Orphan{Kind: OrphanSession, Name: iqn, Removal: RemovalKept,
				Why: "a session, or a record for one, of a volume that no pool has: the node service removes it with its next look, unless something uses it"})
		}
	}
	for path, id := range l.staged {
		if v, err := ident.ParseVolumeID(id); err == nil && s.pools[v.Pool] != nil && !ids[id] {
			all = append(all, Orphan{Kind: OrphanStage, Name: path, Removal: RemovalKept,
				Why: fmt.Sprintf("volume %s is staged here, and does not exist: NodeUnstageVolume ends it", v)})
		}
	}
	return all
}

// podOrphans are the volumes of pods that no node on this host will destroy. A
// record is written before its volume is made and goes after it, so one that was
// seen before or after the volumes counts.
func (s *Service) podOrphans(ctx context.Context, before leavings) ([]Orphan, error) {
	if !before.podsKnown {
		return nil, nil
	}
	var found []Orphan
	var errs []error
	for _, name := range s.order {
		list, err := s.podsVolumes(ctx, s.pools[name])
		found, errs = append(found, list...), append(errs, err)
	}
	after, _, err := s.cfg.Leavings.Pods(ctx)
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	return slices.DeleteFunc(found, func(o Orphan) bool { return before.pods[o.volume.String()] || after[o.volume.String()] }), errors.Join(errs...)
}

// podsVolumes are the volumes of pods, as orphans of which no record is known.
func (s *Service) podsVolumes(ctx context.Context, p *pool) ([]Orphan, error) {
	if _, err := s.sightOf(ctx, p); err != nil {
		return nil, err
	}
	var all []Orphan
	err := s.read(ctx, "list volumes of pods", p.cfg.Name, func(ctx context.Context) error {
		records, err := s.listRecords(ctx, p)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.params.Ephemeral {
				all = append(all, Orphan{Kind: OrphanPod, Name: r.dataset.Name, Removal: RemovalKept, volume: r.id,
					Why: fmt.Sprintf("the volume of %s, of which the node on this host has no record: if the pod is gone, `tarn unpublish %s NODE` and `zfs destroy %s`",
						readOwner(r.dataset), r.id, r.dataset.Name)})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err // the operation may still run, and append
	}
	return all, nil
}
