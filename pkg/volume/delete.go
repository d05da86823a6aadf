package volume

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/release"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// busyPatience is how long a zvol may stay busy with udev's look at it, which
// follows every creation and every close of a writer.
const busyPatience = 15 * time.Second

// Delete deletes a volume. One that does not exist, or that this driver did
// not make, is a success. What still depends on it (snapshots, clones) is kept:
// the volume is put out of sight until its last dependent is gone, and its name
// is free.
//
// fault.Precondition while it is published or used.
func (s *Service) Delete(ctx context.Context, volumeID string) error {
	id, err := s.parse(volumeID)
	if err != nil {
		return okIfUnknown(err)
	}
	// A copy that is to become the volume is wanted no more.
	s.pools[id.Pool].index.cancelCopy(id)
	return s.lock(ctx, "DeleteVolume", id, func(ctx context.Context) error {
		p, r, err := s.findToDelete(ctx, id)
		if fault.Kind(err) == fault.NotFound {
			return s.deleteCopy(ctx, id)
		}
		if err != nil {
			return err
		}
		if nodes := r.nodes(); len(nodes) > 0 {
			return fault.New(fault.Precondition, "volume %s is published to %s: unpublish it first", id, strings.Join(nodes, ", "))
		}
		if err := s.remove(ctx, p, r); err != nil {
			return err
		}
		return s.deleteCopy(ctx, id)
	})
}

// deleteCopy removes the copy that was to become a volume, if there is one.
func (s *Service) deleteCopy(ctx context.Context, id ident.VolumeID) error {
	p, err := s.pool(id.Pool)
	if err != nil || !p.index.expects(id) {
		return err
	}
	return s.dropIncoming(ctx, p, id)
}

func okIfUnknown(err error) error {
	if fault.Kind(err) == fault.NotFound {
		return nil
	}
	return err
}

// findToDelete is find for a volume whose properties need not make sense.
func (s *Service) findToDelete(ctx context.Context, id ident.VolumeID) (*pool, *record, error) {
	p, r, err := s.find(ctx, id)
	var broken *record
	if err != nil && p == nil {
		if p, err2 := s.pool(id.Pool); err2 == nil && fault.Kind(err) == fault.Precondition {
			if d, err2 := s.cfg.ZFS.Get(ctx, p.dataset(id.Component)); err2 == nil && !d.KeyMissing() {
				if broken, _ = readRecord(id, d); broken != nil {
					return p, broken, nil
				}
			}
		}
	}
	return p, r, err
}

// remove closes, unmounts and destroys. Each step is skipped when it was done
// before.
func (s *Service) remove(ctx context.Context, p *pool, r *record) error {
	if err := s.close(ctx, p, r); err != nil {
		return err
	}
	if r.dataset.Type() == zfs.Filesystem {
		if err := s.unmount(ctx, r); err != nil {
			return err
		}
	}
	err := s.destroy(ctx, r)
	if errors.Is(err, zfs.ErrDependents) {
		return s.bury(ctx, p, r)
	}
	if err != nil && !errors.Is(err, zfs.ErrNotExist) {
		return describe(err, "delete volume %s", r.id)
	}
	s.reap(ctx, p, p.index.destroyed(r))
	return nil
}

// close takes down whatever exports the volume.
func (s *Service) close(ctx context.Context, p *pool, r *record) error {
	if !ident.ValidUUID(r.uuid) {
		return nil // it was never exported: every export carries the uuid
	}
	protocol := ISCSI
	if r.dataset.Type() == zfs.Filesystem {
		protocol = NFS
	}
	e := s.cfg.Exporters[protocol]
	if e == nil {
		return fault.New(fault.Precondition, "volume %s is of protocol %s, which this driver does not serve now: start it with --protocols %s", r.id, protocol, protocol)
	}
	v := s.export(p, r)
	v.Grants = nil
	return e.Ensure(ctx, v)
}

// destroy destroys the dataset. What is busy with nothing but the host's own
// curiosity is waited for.
func (s *Service) destroy(ctx context.Context, r *record) error {
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	released := false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.cfg.ZFS.Destroy(ctx, r.dataset.Name)
		if !errors.Is(err, zfs.ErrBusy) {
			return err
		}
		if !released {
			if err := s.cfg.Host.Release(ctx, s.held(r, "")); err != nil {
				return fault.New(kindOr(err, fault.Precondition), "volume %s is still in use: %w", r.id, err)
			}
			released = true
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fault.New(fault.Precondition, "volume %s is still in use on the storage host: %w; see by whom with `fuser -v %s`", r.id, err, r.device())
		}
	}
}

// held describes the volume to Host.Release.
func (s *Service) held(r *record, dir string) release.Held {
	h := release.Held{Dir: dir, Alive: s.published.nfsClients()}
	if r.dataset.Type() == zfs.Volume {
		h.Device = r.device()
	}
	return h
}

// device is the zvol's path on this host.
func (r *record) device() string { return zfs.DevicePath(r.dataset.Name) }

// export is the wanted state of the volume's export.
func (s *Service) export(p *pool, r *record) export.Volume {
	v := export.Volume{ID: r.id.String(), UUID: r.uuid, SizeBytes: r.sizeBytes}
	if r.dataset.Type() == zfs.Volume {
		v.Source = r.device()
		for _, a := range p.cfg.Addresses {
			v.Portals = append(v.Portals, netip.AddrPortFrom(a, p.cfg.ISCSIPort))
		}
		return v
	}
	v.Source = r.mountpoint(p)
	v.Squash = export.Squash{Mode: r.params.Squash, AnonUID: r.params.AnonUID, AnonGID: r.params.AnonGID}
	return v
}
