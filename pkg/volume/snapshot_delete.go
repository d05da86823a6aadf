package volume

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// DeleteSnapshot deletes a snapshot. One that does not exist, or that this
// driver did not take, is a success. Clones of it live on.
//
// fault.Invalid for a member of a group, which lives and goes with it;
// fault.Precondition while the storage host has it open.
func (s *Service) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	id, err := s.parseSnapshot(snapshotID)
	if err != nil {
		return okIfUnknown(err)
	}
	return s.lockSnapshot(ctx, "DeleteSnapshot", id, func(ctx context.Context) error {
		p, n, err := s.findSnapshotToDelete(ctx, id)
		if n == nil || err != nil {
			return okIfUnknown(err)
		}
		if n.group != nil {
			return fault.New(fault.Invalid, "snapshot %s is a member of group %s and is deleted with it: delete the group", id, n.groupID())
		}
		if err := s.removeSnapshot(ctx, p, n); err != nil {
			return err
		}
		s.reap(ctx, p, n.uuid())
		return nil
	})
}

// findSnapshotToDelete is findSnapshot, under the volume's lock, for a snapshot
// whose properties need not make sense; nil when there is none.
func (s *Service) findSnapshotToDelete(ctx context.Context, id ident.SnapshotID) (*pool, *snapshot, error) {
	p, err := s.pool(id.Volume.Pool)
	if err != nil {
		return nil, nil, err
	}
	n, err := s.seen(ctx, p, id, true)
	if err == nil && n == nil {
		n, err = s.unseen(ctx, p, id)
	}
	return p, n, err
}

// removeSnapshot destroys a snapshot. One that clones or holds still need is
// renamed, which frees its name at once, and goes with the last of them.
func (s *Service) removeSnapshot(ctx context.Context, p *pool, n *snapshot) error {
	err := zfs.ErrDependents
	if len(n.dataset.Clones()) == 0 && n.dataset.Bytes("userrefs") == 0 {
		err = s.cfg.ZFS.Destroy(ctx, n.dataset.Name)
	}
	if errors.Is(err, zfs.ErrDependents) {
		err = s.hideSnapshot(ctx, p, n)
	}
	switch {
	case err == nil, errors.Is(err, zfs.ErrNotExist):
		p.index.dropSnapshot(n.id)
		return nil
	case errors.Is(err, zfs.ErrBusy):
		return fault.New(fault.Precondition, "snapshot %s is in use on the storage host: %w; see whether it is being copied or mounted under .zfs/snapshot", n.id, err)
	}
	return describe(err, "delete snapshot %s", n.id)
}

// hideSnapshot gives a snapshot a name that nobody asks for, and leaves its end
// to ZFS. Cut off in between, the next reconcile completes it.
func (s *Service) hideSnapshot(ctx context.Context, p *pool, n *snapshot) error {
	dataset, _, _ := cutSnapshot(n.dataset.Name)
	uuid := newUUID()
	hidden := dataset + "@" + deletedMark + uuid
	if err := s.cfg.ZFS.Rename(ctx, n.dataset.Name, hidden); err != nil {
		return err
	}
	p.index.dropSnapshot(n.id)
	err := s.cfg.ZFS.DestroyLater(ctx, hidden)
	if err == nil {
		p.index.leave(uuid)
	}
	return err
}

// newUUID returns a uuid as ident.ValidUUID wants it.
func newUUID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }
