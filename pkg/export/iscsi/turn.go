package iscsi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// maxTurn bounds how long an open waits for others, which one of them may never
// end.
const maxTurn = 5 * time.Second

// turns let one at a time open a device, by pool.
type turns struct {
	mu     sync.Mutex
	byPool map[string]chan struct{}
}

func (t *turns) of(pool string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPool == nil {
		t.byPool = map[string]chan struct{}{}
	}
	if t.byPool[pool] == nil {
		t.byPool[pool] = make(chan struct{}, 1)
	}
	return t.byPool[pool]
}

// openDevice looks at a device, at one of a pool at a time: the first open of a
// zvol takes spa_namespace_lock, and all others that want it try again meanwhile
// without a pause (zvol_open in module/os/linux/zfs/zvol_os.c).
func (e *Exporter) openDevice(ctx context.Context, path string) (Device, error) {
	pool, _, _ := strings.Cut(strings.TrimPrefix(path, zvolDir), "/")
	turn := e.turns.of(pool)
	timer := time.NewTimer(maxTurn)
	defer timer.Stop()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-timer.C:
	case <-ctx.Done():
		return Device{}, fmt.Errorf("%s: other devices of the pool were being opened: %w", path, ctx.Err())
	}
	return e.device(path)
}
