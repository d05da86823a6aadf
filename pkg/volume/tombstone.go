package volume

import (
	"context"
	"errors"
	"strings"

	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// tombstones is where volumes wait for their last dependent, hidden below the
// parent: no volume's name begins with a dot.
const tombstones = ".tombstones"

// tombstone is the dataset that a volume becomes when it is deleted before its
// snapshots and clones. The uuid lets several volumes of one name wait.
func (p *pool) tombstone(component, uuid string) string {
	name := p.dataset(tombstones) + "/" + component
	if ident.ValidUUID(uuid) {
		name += "." + uuid
	}
	return name
}

// tombstoneOf is the component that the volume had whose tombstone has a name.
func tombstoneOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 && ident.ValidUUID(name[i+1:]) {
		return name[:i]
	}
	return name
}

// key is the uuid, or the dataset of a volume whose uuid makes no sense.
func (r *record) key() string {
	if ident.ValidUUID(r.uuid) {
		return r.uuid
	}
	return r.dataset.Name
}

// bury renames a volume that has dependents to where no listing shows it. Its
// name is free again, and its snapshots keep their ids.
func (s *Service) bury(ctx context.Context, p *pool, r *record) error {
	from, to := r.dataset.Name, p.tombstone(r.id.Component, r.uuid)
	err := s.cfg.ZFS.Rename(ctx, from, to)
	if errors.Is(err, zfs.ErrNoParent) {
		if err := s.makeHidden(ctx, p.dataset(tombstones)); err != nil {
			return err
		}
		err = s.cfg.ZFS.Rename(ctx, from, to)
	}
	if err != nil {
		return describe(err, "put volume %s out of sight, since it has snapshots or clones", r.id)
	}
	buried := *r
	buried.dataset.Name = to
	p.index.bury(from, &buried)
	return nil
}

// makeHidden makes a filesystem that only holds others.
func (s *Service) makeHidden(ctx context.Context, dataset string) error {
	spec := zfs.Spec{Name: dataset, Properties: []zfs.Setting{{Name: "mountpoint", Value: "none"}, {Name: "canmount", Value: "off"}}}
	if err := s.cfg.ZFS.Create(ctx, spec); err != nil && !errors.Is(err, zfs.ErrExists) {
		return describe(err, "make %s", dataset)
	}
	return nil
}

// reap destroys the tombstone of a key once nothing depends on it, then the
// one that it was a clone of, and so on. What the index does not know, such as
// a foreign snapshot, keeps a tombstone: nothing is ever destroyed with its
// dependents. It is no part of the result of a call: what fails here is told in
// the log and tried again by the next reconcile.
func (s *Service) reap(ctx context.Context, p *pool, key string) {
	for key != "" {
		r, free := p.index.free(key)
		if !free {
			return
		}
		err := s.destroy(ctx, r)
		switch {
		case errors.Is(err, zfs.ErrDependents):
			return
		case err != nil && !errors.Is(err, zfs.ErrNotExist):
			s.log(r.id).WithError(err).WithField("dataset", r.dataset.Name).Warn("a deleted volume that nothing needs any more could not be destroyed yet")
			return
		}
		key = p.index.reaped(key)
	}
}
