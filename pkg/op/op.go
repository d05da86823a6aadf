// Package op runs operations so that there is never more than one for a key,
// and so that a caller can leave before the operation ends. It knows nothing
// of volumes: a key is whatever the caller serialises.
package op

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// maxStuck is how many operations of one group may have outlived their context
// before further ones are refused: each holds a thread and a process that
// nothing can end.
const maxStuck = 8

// Spec describes an operation.
type Spec struct {
	// What names it for people: "CreateVolume".
	What string
	// Keys are locked together, or none of them.
	Keys []string
	// Group is the pool or server that it depends on; empty means none.
	Group string
	// Detached operations go on under Timeout when the caller has left, since
	// they change a pool or a kernel table and must not stop half-way. Others
	// end with the caller's context.
	Detached bool
	// Timeout bounds the operation; zero means only the caller's deadline does.
	Timeout time.Duration
	// Wait is how long a key is waited for that a background operation holds,
	// or that any operation holds when this one is in the background itself.
	Wait time.Duration
	// Background operations are the driver's own: a call that meets one waits
	// for it a little, since its caller could not know.
	Background bool
}

// Running is an operation that has not ended.
type Running struct {
	What  string
	Keys  []string
	Group string
	Since time.Time
	// Overdue reports that its context has ended, and it has not.
	Overdue bool
}

// Table holds the operations that run. The zero value is not usable.
type Table struct {
	mu   sync.Mutex
	held map[string]*entry // by key
	all  map[*entry]struct{}
}

type entry struct {
	Running
	background bool
	ctx        context.Context
	done       chan struct{}
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{held: map[string]*entry{}, all: map[*entry]struct{}{}} }

// Do runs fn while it holds the keys. A key that is held is fault.Busy, saying
// since when and by what. When ctx ends first, Do returns ctx's error at once,
// and the keys stay held until fn has really returned.
func (t *Table) Do(ctx context.Context, s Spec, fn func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, opCtx, cancel, err := t.begin(ctx, s)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer cancel() // after the end: until then an ended context means overdue
		defer t.end(e)
		defer func() {
			if p := recover(); p != nil {
				result <- &PanicError{Value: p, Stack: debug.Stack()}
			}
		}()
		result <- fn(opCtx)
	}()
	select {
	case err := <-result:
		<-e.done // the next call for this key must not meet this one
		return err
	case <-ctx.Done():
		select {
		case err := <-result:
			<-e.done
			return err
		default:
			return fmt.Errorf("%s goes on and may be repeated: %w", s.What, ctx.Err())
		}
	}
}

// PanicError is a panic inside an operation.
type PanicError struct {
	Value any
	// Stack is where it happened; it is no part of the text.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func (t *Table) begin(ctx context.Context, s Spec) (*entry, context.Context, context.CancelFunc, error) {
	deadline := time.Now().Add(s.Wait)
	for {
		t.mu.Lock()
		holder := t.holder(s.Keys)
		if holder == nil {
			break // with the lock held
		}
		t.mu.Unlock()
		left := time.Until(deadline)
		if left <= 0 || !s.Background && !holder.background {
			return nil, nil, nil, fault.New(fault.Busy, "%s has been running for this volume since %s (%s): repeat the call later",
				holder.What, holder.Since.UTC().Format(time.RFC3339), time.Since(holder.Since).Round(time.Millisecond))
		}
		timer := time.NewTimer(left)
		select {
		case <-holder.done:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, nil, ctx.Err()
		}
		timer.Stop()
	}
	defer t.mu.Unlock()
	if n := t.stuck(s.Group); s.Group != "" && n >= maxStuck {
		return nil, nil, nil, fault.New(fault.Unavailable, "%d operations on %s do not end: see the running commands and free it first", n, s.Group)
	}
	base := ctx
	if s.Detached {
		base = context.WithoutCancel(ctx)
	}
	var opCtx context.Context
	var cancel context.CancelFunc
	if s.Timeout > 0 {
		opCtx, cancel = context.WithTimeout(base, s.Timeout)
	} else {
		opCtx, cancel = context.WithCancel(base)
	}
	e := &entry{
		Running:    Running{What: s.What, Keys: slices.Clone(s.Keys), Group: s.Group, Since: time.Now()},
		background: s.Background,
		ctx:        opCtx,
		done:       make(chan struct{}),
	}
	t.all[e] = struct{}{}
	for _, k := range s.Keys {
		t.held[k] = e
	}
	return e, opCtx, cancel, nil
}

// holder returns the operation that holds one of the keys. t.mu is held.
func (t *Table) holder(keys []string) *entry {
	for _, k := range keys {
		if e := t.held[k]; e != nil {
			return e
		}
	}
	return nil
}

func (t *Table) end(e *entry) {
	t.mu.Lock()
	delete(t.all, e)
	for _, k := range e.Keys {
		delete(t.held, k)
	}
	t.mu.Unlock()
	close(e.done)
}

// stuck counts the overdue operations of a group. t.mu is held.
func (t *Table) stuck(group string) int {
	n := 0
	for e := range t.all {
		if e.Group == group && e.overdue() {
			n++
		}
	}
	return n
}

func (e *entry) overdue() bool { return e.ctx.Err() != nil }

// Running returns the operations that run now, the oldest first.
func (t *Table) Running() []Running {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Running
	for e := range t.all {
		r := e.Running
		r.Overdue = e.overdue()
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Running) int { return a.Since.Compare(b.Since) })
	return list
}

// Held reports whether an operation holds a key now.
func (t *Table) Held(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[key] != nil
}

// Drain waits until no operation runs, or until ctx ends.
func (t *Table) Drain(ctx context.Context) error {
	for {
		t.mu.Lock()
		var e *entry
		for e = range t.all {
			break
		}
		t.mu.Unlock()
		if e == nil {
			return nil
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return fmt.Errorf("%s still runs: %w", e.What, ctx.Err())
		}
	}
}
