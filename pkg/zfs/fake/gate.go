package fake

import (
	"context"
	"strings"
	"sync"

	"github.com/tarn-csi/tarn/pkg/step"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Call is one call of the interfaces, as Observe sees it.
type Call struct {
	// Verb is the method's name in lower case; Name is the dataset, or the
	// directory for those that take one.
	Verb, Name string
	Err        error
}

// gate is what every call passes: faults, and a pool that does not answer.
type gate struct {
	mu       sync.Mutex
	count    int
	failAt   int
	failErr  error
	lateAt   int // fails after it took effect
	lateErr  error
	cutAt    int
	cutErr   error
	observe  func(Call)
	refuses  bool
	state    string        // of the pool while it is not suspended
	mounting bool          // somebody imports or mounts
	resumed  chan struct{} // closed while the pool answers
}

// FailNth makes the n-th call from now fail once with err and without effect; 1
// is the next.
func (f *ZFS) FailNth(n int, err error) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.failAt, f.gate.failErr = f.gate.count+n, err
}

// FailAfterNth makes the n-th call from now take effect and report err all the
// same, as when its caller is killed before it learns the outcome.
func (f *ZFS) FailAfterNth(n int, err error) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.lateAt, f.gate.lateErr = f.gate.count+n, err
}

// CutAfter lets n more calls happen and fails all that follow with err: nothing
// more comes from a process that is killed there.
func (f *ZFS) CutAfter(n int, err error) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.cutAt, f.gate.cutErr = f.gate.count+n+1, err
}

// Heal takes back FailNth, FailAfterNth and CutAfter.
func (f *ZFS) Heal() {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.failAt, f.gate.lateAt, f.gate.cutAt = 0, 0, 0
}

// Calls returns how many calls there were.
func (f *ZFS) Calls() int {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	return f.gate.count
}

// Observe calls fn after each call; nil calls nobody.
func (f *ZFS) Observe(fn func(Call)) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.observe = fn
}

// Suspend makes every call hang until Resume, or until its context ends.
func (f *ZFS) Suspend() {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	select {
	case <-f.gate.resumed:
		f.gate.resumed = make(chan struct{})
	default:
	}
}

// SuspendRefusing makes every command fail at once with zfs.ErrSuspended, reads
// too, as the kernel does once it has noticed.
func (f *ZFS) SuspendRefusing() {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.refuses = true
}

// Resume is `zpool clear`: waiting calls go on.
func (f *ZFS) Resume() {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.gate.refuses = false
	select {
	case <-f.gate.resumed:
	default:
		close(f.gate.resumed)
	}
}

// commands are the calls that run zfs(8).
var commands = map[string]bool{
	"get": true, "children": true, "available": true, "looksempty": true,
	"snapshot": true, "snapshots": true, "snapshotuses": true, "clone": true, "copy": true, "dropcopy": true, "keysmissing": true,
	"create": true, "destroy": true, "set": true, "inherit": true, "rename": true,
}

// begin is the step that the call is where it is real.
func begin(ctx context.Context, verb string) (ended func(), err error) {
	switch {
	case commands[verb]:
		return step.Begin(ctx, step.Child, "zfs "+verb)
	case strings.HasSuffix(verb, "mount"):
		return step.Begin(ctx, step.Mount, verb)
	case verb == "setroot", verb == "release":
		return step.Begin(ctx, step.File, verb)
	}
	return func() {}, nil
}

// do runs one call under the lock, after its faults.
func do[T any](ctx context.Context, f *ZFS, verb, name string, call func() (T, error)) (T, error) {
	ended, err := begin(ctx, verb)
	if err != nil {
		var none T
		return none, err
	}
	defer ended()
	result, err := pass(ctx, f, verb, name, call)
	f.gate.mu.Lock()
	observe := f.gate.observe
	f.gate.mu.Unlock()
	if observe != nil {
		observe(Call{Verb: verb, Name: name, Err: err})
	}
	return result, err
}

func do0(ctx context.Context, f *ZFS, verb, name string, call func() error) error {
	_, err := do(ctx, f, verb, name, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func pass[T any](ctx context.Context, f *ZFS, verb, name string, call func() (T, error)) (T, error) {
	var none T
	f.gate.mu.Lock()
	f.gate.count++
	var early, late error
	switch g := &f.gate; {
	case g.count == g.failAt:
		early = g.failErr
	case g.cutAt > 0 && g.count >= g.cutAt:
		early = g.cutErr
	case g.refuses && commands[verb]:
		early = refuse(zfs.ErrSuspended, "cannot open '%s': pool I/O is currently suspended", name)
	}
	if f.gate.count == f.gate.lateAt {
		late = f.gate.lateErr
	}
	resumed := f.gate.resumed
	f.gate.mu.Unlock()
	if early != nil {
		return none, early
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	select {
	case <-resumed:
	default:
		select {
		case <-resumed:
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	result, err := call()
	if err == nil && late != nil {
		return none, late
	}
	return result, err
}
