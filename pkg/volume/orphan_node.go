package volume

import (
	"context"
	"errors"
	"fmt"

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
}

// leavings is what was read of them.
type leavings struct{ sessions, staged map[string]string }

func (s *Service) readLeavings(ctx context.Context) (l leavings, err error) {
	if s.cfg.Leavings == nil {
		return l, nil
	}
	var err1, err2 error
	l.sessions, err1 = s.cfg.Leavings.Sessions(ctx)
	l.staged, err2 = s.cfg.Leavings.Staged(ctx)
	return l, errors.Join(err1, err2)
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
