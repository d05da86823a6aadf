package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// pool is one configured pool and what was last seen of it.
type pool struct {
	cfg   PoolConfig
	index index

	mu sync.Mutex
	// err says why the pool cannot be used; nil once it was opened.
	err  error
	base string // the parent's mountpoint
	// usedBytes and availableBytes are the parent's.
	usedBytes, availableBytes int64
	lock                      *os.File
	// seen are the volumes that the last listing showed; nil before the first.
	seen []ident.VolumeID
	// listing is how long its listings may take; zero before one took long.
	listing time.Duration
}

// saw notes what a listing showed, for when the pool does not answer.
func (p *pool) saw(ids []ident.VolumeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = ids
}

// known are the volumes that the last listing showed; nil when there was none.
func (p *pool) known() []ident.VolumeID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// measure notes how full the parent is.
func (p *pool) measure(parent zfs.Dataset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usedBytes, p.availableBytes = parent.Bytes("used"), parent.Bytes("available")
}

// unusable says why the pool cannot be used, or nil.
func (p *pool) unusable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *pool) dataset(component string) string { return p.cfg.Parent + "/" + component }

// mountpoint is where an NFS volume is mounted on this host.
func (p *pool) mountpoint(component string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.HasPrefix(p.base, "/") {
		return "", fault.New(fault.Precondition, "pool %q: dataset %s has mountpoint %q, so nothing below it can be exported over NFS: set it to a path",
			p.cfg.Name, p.cfg.Parent, p.base)
	}
	return filepath.Join(p.base, component), nil
}

// pool returns a pool that can be used now.
func (s *Service) pool(name string) (*pool, error) {
	p := s.pools[name]
	if p == nil {
		return nil, fault.New(fault.NotFound, "no pool %q is configured", name)
	}
	if err := p.unusable(); err != nil {
		return nil, err
	}
	return p, nil
}

// open takes the pool: one process at a time, whose driver name owns the
// parent. It may be called again; a pool that was imported meanwhile becomes
// usable, one that is gone becomes unusable.
func (s *Service) open(ctx context.Context, p *pool) error {
	base, err := s.claim(ctx, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.base = err, base
	return err
}

func (s *Service) claim(ctx context.Context, p *pool) (string, error) {
	if err := p.take(s.cfg.LockDir); err != nil {
		return "", err
	}
	d, marked, err := s.readParent(ctx, p)
	if err != nil {
		return "", err
	}
	if !marked {
		if err := s.cfg.ZFS.Set(ctx, p.cfg.Parent, zfs.Setting{Name: propDriver, Value: s.cfg.Driver}); err != nil {
			return "", describe(err, "claim parent %s", p.cfg.Parent)
		}
		// Made now, it costs no call anything later.
		if err := s.makeHidden(ctx, p.dataset(tombstones)); err != nil {
			return "", err
		}
	}
	p.measure(d)
	base, _ := d.Value("mountpoint")
	return base, s.mountParent(ctx, p, d, base)
}

// Open takes the pool of a volume, for a process that does one thing and then
// Close. fault.Unavailable while another process serves it.
func (s *Service) Open(ctx context.Context, volumeID string) error {
	id, err := s.parse(volumeID)
	if err != nil {
		return err
	}
	return s.openPool(ctx, s.pools[id.Pool])
}

// openPool is open as an operation.
func (s *Service) openPool(ctx context.Context, p *pool) error {
	return s.ops.Do(ctx, op.Spec{What: "open pool", Keys: []string{"pool " + p.cfg.Name}, Group: "pool " + p.cfg.Name, Timeout: s.cfg.Operation, Detached: true},
		func(ctx context.Context) error { return s.open(ctx, p) })
}

// readParent reads a parent that is this driver's, or nobody's yet.
func (s *Service) readParent(ctx context.Context, p *pool) (d zfs.Dataset, marked bool, err error) {
	// Of a suspended pool a command may never end.
	if state, err := s.cfg.Host.PoolState(ctx, p.cfg.Parent); err == nil && state == zfs.Suspended {
		return d, false, fault.New(fault.Unavailable, "pool %q is suspended, since its devices failed: repair them and run `zpool clear`", p.cfg.Name)
	}
	d, err = s.cfg.ZFS.Get(ctx, p.cfg.Parent)
	if err != nil {
		return d, false, fault.New(fault.Unavailable, "pool %q: %w: import the pool, or make the parent dataset with `zfs create %s`", p.cfg.Name, err, p.cfg.Parent)
	}
	if d.Type() != zfs.Filesystem {
		return d, false, fault.New(fault.Precondition, "pool %q: parent %s is a zvol; it must be a filesystem", p.cfg.Name, p.cfg.Parent)
	}
	if d.KeyMissing() {
		return d, false, fault.New(fault.Unavailable, "pool %q: the encryption key of %s is not loaded: run `zfs load-key`", p.cfg.Name, p.cfg.Parent)
	}
	owner, marked := d.Own(propDriver)
	if marked && owner != s.cfg.Driver {
		return d, true, fault.New(fault.Precondition, "pool %q: parent %s belongs to driver %q, and this is %q: use another parent, or start with --driver-name %s",
			p.cfg.Name, p.cfg.Parent, owner, s.cfg.Driver, owner)
	}
	return d, marked, nil
}

// mountParent mounts the parent where ZFS would, and what is above it, before
// volumes are mounted in its place: a later `zfs mount -a` would cover them. So
// would an import that still mounts: fault.Unavailable until it has ended. Where
// mounting fails, as when volumes are there already, the pool is usable all the
// same.
func (s *Service) mountParent(ctx context.Context, p *pool, d zfs.Dataset, base string) error {
	canmount, _ := d.Value("canmount")
	if s.cfg.Exporters[NFS] == nil || canmount != "on" || !strings.HasPrefix(base, "/") {
		return nil
	}
	_, mounted, err := s.cfg.Host.MountedAt(ctx, d.Name)
	if err == nil && !mounted {
		var mounting bool
		if mounting, err = s.cfg.Host.Mounting(ctx); err != nil {
			return describe(err, "look for an import of pool %q", p.cfg.Name)
		}
		if mounting {
			return fault.New(fault.Unavailable, "pool %q: parent %s is not mounted yet: a `zpool import` or `zfs mount` still runs", p.cfg.Name, p.cfg.Parent)
		}
		// What an import mounted is there once it has ended.
		err = errors.Join(s.mountAbove(ctx, d.Name, base), s.mountUnmounted(ctx, d, base))
	}
	if err != nil {
		s.cfg.Log.WithError(err).WithField("pool", p.cfg.Name).
			Warnf("parent %s is not mounted at %s: `zfs mount -a` would cover the volumes there", d.Name, base)
	}
	return nil
}

// mountAbove mounts the datasets above a parent in whose directories it lies, the
// uppermost first: of an import without mounts, none is mounted yet.
func (s *Service) mountAbove(ctx context.Context, parent, base string) error {
	for i, c := range parent {
		if c != '/' {
			continue
		}
		d, err := s.cfg.ZFS.Get(ctx, parent[:i])
		if err != nil {
			return err
		}
		canmount, _ := d.Value("canmount")
		dir, _ := d.Value("mountpoint")
		if canmount != "on" || !strings.HasPrefix(base, dir+"/") {
			continue
		}
		if err := s.mountUnmounted(ctx, d, dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) mountUnmounted(ctx context.Context, d zfs.Dataset, dir string) error {
	_, mounted, err := s.cfg.Host.MountedAt(ctx, d.Name)
	if err != nil || mounted {
		return err
	}
	atime, _ := d.Value("atime")
	return s.cfg.Host.Mount(ctx, d.Name, dir, atime != "off")
}

// take holds the lock file of the parent until the process ends.
func (p *pool) take(dir string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock != nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(p.cfg.Parent))
	path := filepath.Join(dir, "parent-"+hex.EncodeToString(sum[:8])+".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return fault.New(fault.Unavailable, "pool %q: another process serves parent %s (lock file %s: %v)", p.cfg.Name, p.cfg.Parent, path, err)
	}
	p.lock = f
	return nil
}

// Close gives the pools back.
func (s *Service) Close() error {
	var first error
	for _, p := range s.pools {
		p.mu.Lock()
		if p.lock != nil {
			if err := p.lock.Close(); err != nil && first == nil {
				first = fmt.Errorf("release pool %q: %w", p.cfg.Name, err)
			}
			p.lock = nil
		}
		p.mu.Unlock()
	}
	return first
}
