package volume

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// CreateSnapshot takes a snapshot of a volume, or finds the one that an earlier
// call of the same name took; its volume may have been deleted since.
//
// Errors: fault.NotFound for the volume; fault.Exists when the name is taken by
// a snapshot of another volume; fault.Exhausted when a reservation cannot be
// kept up.
func (s *Service) CreateSnapshot(ctx context.Context, name, volumeID string, parameters map[string]string) (Snapshot, error) {
	if name == "" {
		return Snapshot{}, fault.New(fault.Invalid, "the snapshot name is empty")
	}
	if err := checkSnapshotParameters(parameters); err != nil {
		return Snapshot{}, err
	}
	vid, err := s.parse(volumeID)
	if err != nil {
		return Snapshot{}, err
	}
	id := ident.SnapshotID{Volume: vid, Component: ident.Component(name)}
	var made Snapshot
	err = s.lockSnapshot(ctx, "CreateSnapshot", id, func(ctx context.Context) error {
		n, err := s.takeSnapshot(ctx, id, name)
		if err == nil {
			made = n.snapshot()
		}
		return err
	})
	if err != nil {
		return Snapshot{}, err // the operation may still run
	}
	return made, nil
}

// checkSnapshotParameters refuses parameters: there are none yet.
func checkSnapshotParameters(m map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !ignored(key) {
			return fault.New(fault.Invalid, "parameter %q is unknown: snapshots have no parameters", ident.Printable(key))
		}
	}
	return nil
}

// lockSnapshot runs fn as an operation on one snapshot that changes something.
// The name is locked beside the volume, so that two volumes never get snapshots
// of one name at once.
func (s *Service) lockSnapshot(ctx context.Context, what string, id ident.SnapshotID, fn func(context.Context) error) error {
	return s.lockAll(ctx, what, []ident.VolumeID{id.Volume}, []string{"snapshot " + id.Component}, fn)
}

func (s *Service) takeSnapshot(ctx context.Context, id ident.SnapshotID, name string) (*snapshot, error) {
	p, err := s.pool(id.Volume.Pool)
	if err != nil {
		return nil, err
	}
	n, err := s.takenBefore(ctx, p, id)
	if n != nil || err != nil {
		return n, err
	}
	_, r, err := s.find(ctx, id.Volume)
	if err != nil {
		return nil, err
	}
	marks, err := snapshotSettings(name, r.sizeBytes, time.Now())
	if err != nil {
		return nil, err
	}
	full := r.dataset.Name + "@" + id.Component
	err = s.cfg.ZFS.Snapshot(ctx, zfs.SnapshotSpec{Names: []string{full}, Properties: marks})
	if errors.Is(err, zfs.ErrExists) {
		return s.unexpected(ctx, p, id, full)
	}
	if err != nil {
		return nil, describe(err, "take snapshot %s", id)
	}
	n, _ = readSnapshot(id, fresh(full, marks, r.uuid))
	p.index.addSnapshot(id, n.place())
	return n, n.err
}

// fresh is what a read of a snapshot would say that was made just now.
func fresh(name string, marks []zfs.Setting, uuid string) zfs.Dataset {
	properties := map[string]zfs.Property{propUUID: {Value: uuid, Source: "inherited"}}
	for _, m := range marks {
		properties[m.Name] = zfs.Property{Value: m.Value, Source: "local"}
	}
	return zfs.NewDataset(name, properties)
}

// takenBefore returns the snapshot that has the name already; nil when none
// has. fault.Exists when it is another volume's, one that was deleted and whose
// name a new one has included.
func (s *Service) takenBefore(ctx context.Context, p *pool, id ident.SnapshotID) (*snapshot, error) {
	for _, name := range s.order {
		other, ok := s.pools[name].index.named(id.Component)
		if !ok || other == id {
			continue
		}
		n, err := s.seen(ctx, s.pools[name], other, false)
		if err != nil {
			return nil, err
		}
		if n != nil {
			return nil, fault.New(fault.Exists, "a snapshot of that name exists: it is %s, of another volume: choose another name", other)
		}
	}
	n, err := s.seen(ctx, p, id, true)
	if n == nil || err != nil {
		return nil, err
	}
	if n.err != nil {
		return nil, n.err
	}
	if n.place().dataset == p.dataset(id.Volume.Component) {
		return n, nil
	}
	_, r, err := s.find(ctx, id.Volume)
	if fault.Kind(err) == fault.NotFound {
		return n, nil
	}
	if err != nil {
		return nil, err
	}
	if r.uuid != n.uuid() {
		return nil, fault.New(fault.Exists, "a snapshot %s exists: it is of a deleted volume of the same name: choose another name or delete it first", id)
	}
	return n, nil
}

// unexpected answers for a snapshot of our name that the index did not know,
// such as one whose maker was cut off.
func (s *Service) unexpected(ctx context.Context, p *pool, id ident.SnapshotID, full string) (*snapshot, error) {
	d, err := s.cfg.ZFS.Get(ctx, full)
	if err != nil {
		return nil, describe(err, "read snapshot %s", id)
	}
	n, ours := readSnapshot(id, d)
	if !ours {
		return nil, fault.New(fault.Exists, "snapshot %s exists and was not made by this driver: rename it, or choose another name", full)
	}
	p.index.addSnapshot(id, n.place())
	return n, n.err
}

// GetSnapshot returns a snapshot. fault.NotFound when it does not exist.
func (s *Service) GetSnapshot(ctx context.Context, snapshotID string) (Snapshot, error) {
	id, err := s.parseSnapshot(snapshotID)
	if err != nil {
		return Snapshot{}, err
	}
	var found Snapshot
	err = s.read(ctx, "GetSnapshot", id.Volume.Pool, func(ctx context.Context) error {
		n, err := s.findSnapshot(ctx, id, false)
		if err == nil {
			found = n.snapshot()
		}
		return err
	})
	if err != nil {
		return Snapshot{}, err // the operation may still run
	}
	return found, nil
}

// parseSnapshot reads an id that must name a pool of the configuration.
func (s *Service) parseSnapshot(id string) (ident.SnapshotID, error) {
	n, err := ident.ParseSnapshotID(id)
	if err != nil {
		return n, err
	}
	if s.pools[n.Volume.Pool] == nil {
		return n, fault.New(fault.NotFound, "snapshot %s does not exist: no pool %q is configured", n, n.Volume.Pool)
	}
	return n, nil
}

// findSnapshot reads a snapshot of this driver, wherever its volume is now:
// fault.NotFound when there is none. locked tells that the caller holds the
// volume's lock.
func (s *Service) findSnapshot(ctx context.Context, id ident.SnapshotID, locked bool) (*snapshot, error) {
	p, err := s.pool(id.Volume.Pool)
	if err != nil {
		return nil, err
	}
	n, err := s.seen(ctx, p, id, locked)
	if err != nil {
		return nil, err
	}
	if n == nil {
		if n, err = s.unseen(ctx, p, id); err != nil {
			return nil, err
		}
	}
	if n.err != nil {
		return nil, n.err
	}
	if n.dataset.KeyMissing() {
		return nil, fault.New(fault.Precondition, "snapshot %s: the encryption key of %s is not loaded: run `zfs load-key`", id, n.dataset.Name)
	}
	return n, nil
}

// seen reads the snapshot that the index knows under an id; nil when it knows
// none, or when that one is gone. Without the volume's lock the volume may be
// renamed between the index's word and the read: then the index has another
// word, or the lock is taken.
func (s *Service) seen(ctx context.Context, p *pool, id ident.SnapshotID, locked bool) (*snapshot, error) {
	for {
		at, ok, err := p.index.snapshot(p.cfg.Name, id)
		if err != nil || !ok {
			return nil, err
		}
		n, err := s.readAt(ctx, p, id, at.dataset)
		if n != nil || err != nil {
			return n, err
		}
		if locked {
			p.index.dropSnapshot(id)
			return nil, nil
		}
		if s.ops.Held(id.Volume.String()) {
			return nil, fault.New(fault.Busy, "snapshot %s cannot be found while its volume is worked on: repeat the call later", id)
		}
		if now, _, err := p.index.snapshot(p.cfg.Name, id); err != nil || now == at {
			return nil, err
		}
	}
}

// unseen looks for a snapshot that the index does not know where its volume
// would have it.
func (s *Service) unseen(ctx context.Context, p *pool, id ident.SnapshotID) (*snapshot, error) {
	n, err := s.readAt(ctx, p, id, p.dataset(id.Volume.Component))
	if err == nil && n == nil {
		err = fault.New(fault.NotFound, "snapshot %s does not exist", id)
	}
	return n, err
}

// readAt reads a snapshot of a dataset; nil when it is not there, or not ours.
func (s *Service) readAt(ctx context.Context, p *pool, id ident.SnapshotID, dataset string) (*snapshot, error) {
	d, err := s.cfg.ZFS.Get(ctx, dataset+"@"+id.Component)
	if errors.Is(err, zfs.ErrNoParent) {
		// The volume is gone too; that the pool is not proves it.
		if _, err := s.cfg.ZFS.Get(ctx, p.cfg.Parent); err != nil {
			return nil, ofParent(err, "read snapshot %s", id)
		}
		return nil, nil
	}
	if errors.Is(err, zfs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, describe(err, "read snapshot %s", id)
	}
	n, ours := readSnapshot(id, d)
	if !ours {
		return nil, nil
	}
	return n, nil
}

// cutSnapshot splits the name of a snapshot.
func cutSnapshot(full string) (dataset, name string, ok bool) { return strings.Cut(full, "@") }
