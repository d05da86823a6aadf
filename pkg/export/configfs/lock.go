package configfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// DefaultLockPath is where the lock of all Tarn processes of a host lies.
const DefaultLockPath = "/run/lock/tarn-configfs.lock"

// The lock file of another process is polled, since flock(2) cannot wait under
// a deadline. Within a process waiters queue.
const (
	firstPoll = time.Millisecond
	maxPoll   = 50 * time.Millisecond
)

// Lock lets one writer at a time change configfs: within this process, and
// across all processes that use the same file. The kernel keeps its own tables
// consistent; the lock keeps apart sequences of operations, such as one that
// fills a shared directory and one that removes it because it is empty.
//
// Readers need no lock. Who removes the file while somebody holds it lets the
// next one in beside them.
type Lock struct {
	path string
	turn chan struct{}
}

var (
	turnsMu sync.Mutex
	turns   = map[string]chan struct{}{}
)

// NewLock returns the lock that the file at path stands for. The file is made
// when it is missing, its directory is not. Locks of one path are one lock.
func NewLock(path string) *Lock {
	path = filepath.Clean(path)
	turnsMu.Lock()
	defer turnsMu.Unlock()
	turn := turns[path]
	if turn == nil {
		turn = make(chan struct{}, 1)
		turns[path] = turn
	}
	return &Lock{path: path, turn: turn}
}

// Acquire waits for the lock until ctx ends and returns the function that gives
// it back. A deadline that passes is fault.Unavailable. A process that dies
// gives its lock back.
func (l *Lock) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, l.gaveUp(ctx, "this process")
	}
	file, err := l.lockFile(ctx)
	if err != nil {
		<-l.turn
		return nil, err
	}
	return func() {
		_ = file.Close() // gives the flock back
		<-l.turn
	}, nil
}

func (l *Lock) gaveUp(ctx context.Context, holder string) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("lock %s: %w", l.path, ctx.Err())
	}
	return fault.New(fault.Unavailable, "%s holds the kernel's target configuration (lock %s): repeat the call later", holder, l.path)
}

func (l *Lock) lockFile(ctx context.Context) (*os.File, error) {
	wait := firstPoll
	for {
		file, err := l.tryFile()
		if err != nil || file != nil {
			return file, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, l.gaveUp(ctx, "another process")
		}
		wait = min(2*wait, maxPoll)
	}
}

// tryFile returns the locked file, or nil when another process holds it.
func (l *Lock) tryFile() (*os.File, error) {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "open the lock of the kernel's target configuration: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", l.path, err)
}
