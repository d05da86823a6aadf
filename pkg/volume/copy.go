package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// incoming is where copies are until they are volumes, hidden below the parent.
const incoming = ".incoming"

// copyTimeout bounds a copy, which takes as long as its data does.
const copyTimeout = 7 * 24 * time.Hour

// incoming is where the copy is received that becomes a volume. The name tells
// which, so that a copy that was cut off is found again.
func (p *pool) incoming(id ident.VolumeID) string {
	return p.dataset(incoming) + "/" + id.Component
}

// copyName is the name of the snapshot by which a volume is copied into the
// volume id: the same at each repeat.
func copyName(id ident.VolumeID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return copyMark + hex.EncodeToString(sum[:16])
}

// copy makes a volume with its source's data, and with nothing in common with
// it. It can take hours, and goes on where it was cut off. What is not whole is
// never called a volume: it gets its name last.
func (c creation) copy(ctx context.Context, p *pool, o *origin) (Volume, error) {
	v, found, err := c.taken(ctx, p)
	if found || err != nil {
		return v, err
	}
	if err := c.fetch(ctx, p, o); err != nil {
		return Volume{}, err
	}
	from, to := p.incoming(c.id), p.dataset(c.id.Component)
	_, name, _ := cutSnapshot(o.snapshot)
	if err := c.cfg.ZFS.Destroy(ctx, from+"@"+name); err != nil && !errors.Is(err, zfs.ErrNotExist) {
		return Volume{}, describe(err, "destroy the snapshot that came with the copy %s", from)
	}
	if err := c.cfg.ZFS.Rename(ctx, from, to); err != nil {
		return Volume{}, describe(err, "give the copy %s its name", from)
	}
	p.index.copyArrived(c.id)
	if c.from.snapshot == "" {
		c.endCopySnapshot(ctx, o)
	}
	return c.finish(ctx, p, to)
}

// fetch brings the whole copy to where copies arrive. It ends early when the
// service stops, and when the volume is deleted meanwhile.
func (c creation) fetch(ctx context.Context, p *pool, o *origin) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.stopping, func() {
		cancel(fault.New(fault.Unavailable, "the driver is stopping: the copy goes on when the call is repeated"))
	})()
	p.index.copyBegins(c.id, func() {
		cancel(fault.New(fault.Aborted, "volume %s was deleted before its copy was whole", c.id))
	})
	defer p.index.copyEnds(c.id)
	if o.snapshot == "" {
		if err := c.snapshotForCopy(ctx, p, o); err != nil {
			return err
		}
	}
	err := c.receive(ctx, p, o)
	if why := context.Cause(ctx); err != nil && fault.Kind(why) != nil {
		return why
	}
	return err
}

// taken answers for a dataset of the volume's name; false when the name is free.
func (c creation) taken(ctx context.Context, p *pool) (Volume, bool, error) {
	d, err := c.cfg.ZFS.Get(ctx, p.dataset(c.id.Component))
	if errors.Is(err, zfs.ErrNotExist) {
		return Volume{}, false, nil
	}
	if err != nil {
		return Volume{}, false, describe(err, "read volume %s", c.id)
	}
	if r, ours := readRecord(c.id, d); ours {
		v, err := c.answer(ctx, p, r)
		return v, true, err
	}
	return Volume{}, false, c.removeBare(ctx, d)
}

// snapshotForCopy takes the snapshot by which a volume is copied, or finds the
// one of an earlier call that was cut off while it copied. One without a copy
// is of a volume that nobody asks for any more, and too old.
func (c creation) snapshotForCopy(ctx context.Context, p *pool, o *origin) error {
	return c.lock(ctx, "CreateVolume", c.from.volume, func(ctx context.Context) error {
		_, r, err := c.find(ctx, c.from.volume) // it may have been deleted since
		if err != nil {
			return err
		}
		full := r.dataset.Name + "@" + copyName(c.id)
		d, err := c.cfg.ZFS.Get(ctx, full)
		if err == nil {
			begun, err := c.begun(ctx, p)
			if err != nil {
				return err
			}
			if begun {
				o.read(d)
				return nil
			}
			if err := c.cfg.ZFS.DestroyLater(ctx, full); err != nil {
				return describe(err, "destroy the snapshot %s", full)
			}
		} else if !errors.Is(err, zfs.ErrNotExist) {
			return describe(err, "read snapshot %s", full)
		}
		if err := c.cfg.ZFS.Snapshot(ctx, hiddenSnapshot(full)); err != nil {
			return describe(err, "take the snapshot %s", full)
		}
		if d, err = c.cfg.ZFS.Get(ctx, full); err != nil {
			return describe(err, "read snapshot %s", full)
		}
		o.read(d)
		return nil
	})
}

// begun reports whether a copy for this volume was begun.
func (c creation) begun(ctx context.Context, p *pool) (bool, error) {
	whole := p.incoming(c.id)
	for _, name := range []string{whole, zfs.PartialName(whole)} {
		_, err := c.cfg.ZFS.Get(ctx, name)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, zfs.ErrNotExist) && !errors.Is(err, zfs.ErrNoParent) {
			return false, describe(err, "read the copy %s", name)
		}
	}
	return false, nil
}

// receive copies the data, with every fact about the volume.
func (c creation) receive(ctx context.Context, p *pool, o *origin) error {
	spec, err := c.cloneSpec(p, o, newUUID())
	if err != nil {
		return err
	}
	spec.Name = p.incoming(c.id)
	err = c.cfg.ZFS.Copy(ctx, o.snapshot, spec)
	if errors.Is(err, zfs.ErrNoParent) {
		if err := c.makeHidden(ctx, p.dataset(incoming)); err != nil {
			return err
		}
		err = c.cfg.ZFS.Copy(ctx, o.snapshot, spec)
	}
	if errors.Is(err, zfs.ErrExists) {
		var same bool
		if same, err = c.arrivedBefore(ctx, p, o); err != nil || same {
			return err
		}
		if err := c.dropIncoming(ctx, p, c.id); err != nil {
			return err
		}
		err = c.cfg.ZFS.Copy(ctx, o.snapshot, spec)
	}
	return describe(err, "copy %s to volume %s", o.what, c.id)
}

// arrivedBefore reports whether the copy that an earlier call has received is
// the one that is wanted.
func (c creation) arrivedBefore(ctx context.Context, p *pool, o *origin) (bool, error) {
	d, err := c.cfg.ZFS.Get(ctx, p.incoming(c.id))
	if err != nil {
		return false, describe(err, "read the copy %s", p.incoming(c.id))
	}
	r, ours := readRecord(c.id, d)
	return ours && r.err == nil && r.differs(c) == "" && r.source.GUID == o.guid, nil
}

// dropIncoming destroys what copies into a volume have left, whole or not.
func (s *Service) dropIncoming(ctx context.Context, p *pool, id ident.VolumeID) error {
	whole := p.incoming(id)
	err := s.cfg.ZFS.DropCopy(ctx, whole)
	if errors.Is(err, zfs.ErrNotExist) {
		// A whole one becomes a partial one again.
		if err = s.cfg.ZFS.Rename(ctx, whole, zfs.PartialName(whole)); err == nil {
			err = s.cfg.ZFS.DropCopy(ctx, whole)
		}
	}
	if err != nil && !errors.Is(err, zfs.ErrNotExist) && !errors.Is(err, zfs.ErrNoParent) {
		return describe(err, "destroy the unfinished copy %s", whole)
	}
	p.index.copyDropped(id)
	return nil
}

// endCopySnapshot destroys the snapshot by which a volume was copied, wherever
// that is by now. What fails is told in the log and done by the next reconcile.
func (c creation) endCopySnapshot(ctx context.Context, o *origin) {
	source := c.pools[o.pool]
	_, name, _ := cutSnapshot(o.snapshot)
	full := source.index.whereabouts(o.uuid, o.dataset) + "@" + name
	if err := c.cfg.ZFS.DestroyLater(ctx, full); err != nil {
		c.log(c.id).WithError(err).WithField("snapshot", full).Warn("the snapshot by which a volume was copied could not be destroyed yet")
		return
	}
	c.reap(ctx, source, o.uuid)
}
