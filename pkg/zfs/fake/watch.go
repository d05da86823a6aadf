package fake

import (
	"context"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// PoolState implements volume.Watch. It answers while the pool does not.
func (f *ZFS) PoolState(_ context.Context, dataset string) (string, error) {
	pool, _, _ := strings.Cut(dataset, "/")
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	suspended := f.gate.refuses
	select {
	case <-f.gate.resumed:
	default:
		suspended = true
	}
	switch {
	case pool != f.poolName || f.gate.state == "":
		return "", refuse(zfs.ErrNotExist, "pool %s is not imported", pool)
	case suspended:
		return zfs.Suspended, nil
	}
	return f.gate.state, nil
}

// SetState sets what the pool's state is while it is not suspended; "" is a pool
// that is not imported.
func (f *ZFS) SetState(state string) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.state = state
}

// Mounting implements volume.Watch.
func (f *ZFS) Mounting(context.Context) (bool, error) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	return f.gate.mounting, nil
}

// SetMounting says whether somebody mounts filesystems, as an import does.
func (f *ZFS) SetMounting(mounting bool) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.mounting = mounting
}

// Mounts implements volume.Watch.
func (f *ZFS) Mounts(ctx context.Context) (map[string]string, error) {
	return do(ctx, f, "mounts", "", func() (map[string]string, error) {
		dirs := map[string]string{}
		for name, n := range f.nodes {
			if n.mountedAt != "" {
				dirs[name] = n.mountedAt
			}
		}
		return dirs, nil
	})
}

// KeysMissing implements volume.Watch.
func (f *ZFS) KeysMissing(ctx context.Context, parent string) (map[string]bool, error) {
	return do(ctx, f, "keysmissing", parent, func() (map[string]bool, error) {
		p, err := f.findParent(parent)
		if err != nil {
			return nil, err
		}
		missing := map[string]bool{}
		for _, n := range f.children(p) {
			if f.keyMissing(n) {
				missing[n.name] = true
			}
		}
		return missing, nil
	})
}
