package nfs

import (
	"context"
	"time"
)

// settle waits until the second has passed in which the path's exports changed
// last. The kernel's cache is flushed by a clock of whole seconds: a second
// change within one can leave it with the first (net/sunrpc/cache.c), and the
// next mount gets ESTALE.
func (e *Exporter) settle(ctx context.Context, source string) error {
	e.mu.Lock()
	last, now := e.changed[source], time.Now()
	for path, t := range e.changed {
		if now.Sub(t) > 2*time.Second {
			delete(e.changed, path)
		}
	}
	next := last.Truncate(time.Second).Add(time.Second)
	e.changed[source] = now
	if now.Before(next) {
		e.changed[source] = next
	}
	e.mu.Unlock()
	if !now.Before(next) {
		return nil
	}
	timer := time.NewTimer(next.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
