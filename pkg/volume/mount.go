package volume

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// mountpoint is where an NFS volume is mounted on this host. A listing does not
// show what is inherited, so this does not depend on it.
func (r *record) mountpoint(p *pool) string {
	if own, ok := r.dataset.Own("mountpoint"); ok {
		return own
	}
	dir, err := p.mountpoint(r.id.Component)
	if err != nil {
		return ""
	}
	return dir
}

// mounted makes sure that an NFS volume is mounted on this host, and returns
// where.
func (s *Service) mounted(ctx context.Context, p *pool, r *record) (string, error) {
	want := r.mountpoint(p)
	if !strings.HasPrefix(want, "/") {
		return "", fault.New(fault.Precondition, "volume %s: dataset %s has mountpoint %q: set it to a path", r.id, r.dataset.Name, want)
	}
	dir, ok, err := s.cfg.Host.MountedAt(ctx, r.dataset.Name)
	if err != nil {
		return "", err
	}
	if ok {
		if dir != want {
			return "", fault.New(fault.Precondition, "volume %s is mounted at %s, but its mountpoint is %s: unmount it", r.id, dir, want)
		}
		return dir, nil
	}
	atime, _ := r.dataset.Value("atime")
	if err := s.cfg.Host.Mount(ctx, r.dataset.Name, want, atime != "off"); err != nil {
		return "", describe(err, "mount volume %s", r.id)
	}
	return want, nil
}

// unmount unmounts an NFS volume from this host, ending state that nobody who
// has a publication uses. What the kernel holds for a moment only, such as a
// cached export, is waited for.
func (s *Service) unmount(ctx context.Context, r *record) error {
	dir, ok, err := s.cfg.Host.MountedAt(ctx, r.dataset.Name)
	if err != nil || !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.cfg.Host.Unmount(ctx, dir)
		if !errors.Is(err, zfs.ErrBusy) {
			return describe(err, "unmount volume %s", r.id)
		}
		if err := s.cfg.Host.Release(ctx, s.held(r, dir)); err != nil {
			return fault.New(kindOr(err, fault.Precondition), "volume %s is still in use: %w", r.id, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fault.New(fault.Precondition, "volume %s is still in use on the storage host: %w; see who with `fuser -vm %s`", r.id, err, dir)
		}
	}
}
