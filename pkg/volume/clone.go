package volume

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// runFrom makes the volume from its source. A source that has gone since an
// earlier call made the volume is no matter.
func (c creation) runFrom(ctx context.Context, p *pool) (Volume, error) {
	if p.index.isCopy(c.id) {
		if v, found, err := c.madeBefore(ctx, p); found || err != nil {
			return v, err
		}
	}
	o, err := c.origin(ctx, *c.from, !c.params.Full)
	if fault.Kind(err) == fault.NotFound {
		if v, found, errBefore := c.madeBefore(ctx, p); found || errBefore != nil {
			return v, errBefore
		}
	}
	if err != nil {
		return Volume{}, err
	}
	c = c.adopt(o.params)
	if c.bytes, err = o.fits(c.params, c.request.Capabilities, c.request.Size); err != nil {
		return Volume{}, err
	}
	if c.params.Full {
		return c.copy(ctx, p, o)
	}
	return c.link(ctx, p, o)
}

// adopt fills in what the request leaves to its source.
func (c creation) adopt(from params) creation {
	c.params = c.params.adopt(from, c.request.Parameters)
	c.caps = canonicalCaps(c.params, c.request.Capabilities)
	return c
}

// madeBefore answers for the volume that an earlier call made; false when there
// is none.
func (c creation) madeBefore(ctx context.Context, p *pool) (Volume, bool, error) {
	d, err := c.cfg.ZFS.Get(ctx, p.dataset(c.id.Component))
	if errors.Is(err, zfs.ErrNotExist) {
		return Volume{}, false, nil
	}
	if err != nil {
		return Volume{}, false, describe(err, "read volume %s", c.id)
	}
	r, ours := readRecord(c.id, d)
	if !ours {
		return Volume{}, false, nil
	}
	v, err := c.answer(ctx, p, r)
	return v, true, err
}

// link makes a linked clone: it shares its source's blocks.
func (c creation) link(ctx context.Context, p *pool, o *origin) (Volume, error) {
	uuid := newUUID()
	spec, err := c.cloneSpec(p, o, uuid)
	if err != nil {
		return Volume{}, err
	}
	err = c.clone(ctx, o, spec, uuid)
	if errors.Is(err, zfs.ErrExists) {
		var again bool
		var v Volume
		if v, again, err = c.occupied(ctx, p, o); err != nil || !again {
			return v, err
		}
		err = c.clone(ctx, o, spec, uuid)
	}
	if err != nil {
		return Volume{}, describe(err, "make volume %s from %s", c.id, o.what)
	}
	p.index.addClone(c.id, uuid, o.uuid)
	return c.finish(ctx, p, spec.Name)
}

// cloneSpec is the clone with every fact about it, its size too: what it has of
// its origin are blocks alone.
func (c creation) cloneSpec(p *pool, o *origin, uuid string) (zfs.Spec, error) {
	spec, err := c.spec(p, uuid)
	if err != nil {
		return spec, err
	}
	spec.Properties = slices.DeleteFunc(spec.Properties, func(s zfs.Setting) bool { return s.Name == "volblocksize" })
	mark, err := o.mark(c.request.Source, c.params.Full)
	spec.Properties = append(spec.Properties, mark)
	return spec, err
}

// clone clones a snapshot, or a volume by a snapshot that goes with the clone.
// Cut off in between, the next reconcile completes it.
func (c creation) clone(ctx context.Context, o *origin, spec zfs.Spec, uuid string) error {
	if o.snapshot != "" {
		return c.cfg.ZFS.Clone(ctx, o.snapshot, spec)
	}
	hidden := o.dataset + "@" + cloneMark + uuid
	if err := c.cfg.ZFS.Snapshot(ctx, hiddenSnapshot(hidden)); err != nil {
		return err
	}
	err := c.cfg.ZFS.Clone(ctx, hidden, spec)
	if later := c.cfg.ZFS.DestroyLater(ctx, hidden); later != nil {
		c.log(c.id).WithError(later).WithField("snapshot", hidden).Warn("the snapshot that a clone was made of could not be marked to go with it yet")
	}
	return err
}

// occupied answers for a dataset that was there before; true when it was the
// rest of a cloning that a power loss cut off, and is gone now.
func (c creation) occupied(ctx context.Context, p *pool, o *origin) (Volume, bool, error) {
	d, err := c.cfg.ZFS.Get(ctx, p.dataset(c.id.Component))
	if err != nil {
		return Volume{}, false, describe(err, "read volume %s", c.id)
	}
	if r, ours := readRecord(c.id, d); ours {
		v, err := c.answer(ctx, p, r)
		return v, false, err
	}
	if !o.bareClone(d) {
		return Volume{}, true, c.removeBare(ctx, d)
	}
	return Volume{}, true, describe(c.cfg.ZFS.Destroy(ctx, d.Name), "replace the unfinished clone %s", d.Name)
}

// bareClone reports whether a dataset is a clone of this source as a power loss
// leaves it between the kernel's two steps: nothing set, nothing written.
func (o *origin) bareClone(d zfs.Dataset) bool {
	from, _ := d.Value("origin")
	_, name, _ := cutSnapshot(from)
	if from != o.snapshot && !strings.HasPrefix(from, o.dataset+"@"+cloneMark) || name == "" || !d.Unmarked() {
		return false
	}
	return d.Bytes("usedbydataset") < zfs.UntouchedClone
}

// grow gives a volume that was made from a source the size and the reservation
// that it was to have, where its making was cut off before.
func (c creation) grow(ctx context.Context, r *record) error {
	short := r.sizeBytes < r.createdBytes
	unreserved := !r.params.Thin && r.dataset.Bytes("refreservation") == 0
	if c.from == nil || !short && !unreserved {
		return nil
	}
	bytes := max(r.sizeBytes, r.createdBytes)
	if err := c.cfg.ZFS.SetAll(ctx, r.dataset.Name, sizeSettings(r.params, bytes)); err != nil {
		return describe(err, "grow volume %s", c.id)
	}
	r.sizeBytes = bytes
	return nil
}
