package configfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestLockLetsOneWriterAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, entered atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			// Each has its own Lock, as two exporters in one process do.
			release, err := configfs.NewLock(path).Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			if inside.Add(1) != 1 {
				t.Error("two writers at once")
			}
			entered.Add(1)
			inside.Add(-1)
		})
	}
	wg.Wait()
	if entered.Load() != 16 {
		t.Fatalf("%d of 16 had the lock", entered.Load())
	}
}

// otherProcess holds the lock file as another process would: flock(2) excludes
// by open file description.
func otherProcess(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLockWaitsForAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	other := otherProcess(t, path)
	got := make(chan error, 1)
	go func() {
		release, err := configfs.NewLock(path).Acquire(t.Context())
		if err == nil {
			release()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("the lock was had twice: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestLockWaitIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	other := otherProcess(t, path)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := configfs.NewLock(path).Acquire(short()); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("held by another process: %v", err)
	}
	_ = other.Close()
	release, err := configfs.NewLock(path).Acquire(short())
	if err != nil {
		t.Fatalf("after a wait that was given up: %v", err)
	}
	if _, err := configfs.NewLock(path).Acquire(short()); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("held by this process: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := configfs.NewLock(path).Acquire(cancelled); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	release()
	release, err = configfs.NewLock(path).Acquire(short())
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestLockKeepsOutOtherProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	try := func(how int) error {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		return unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	}
	release, err := configfs.NewLock(path).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []int{unix.LOCK_EX, unix.LOCK_SH} {
		if err := try(how); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("while it is held: %v", err)
		}
	}
	release()
	if err := try(unix.LOCK_EX); err != nil {
		t.Errorf("when it was given back: %v", err)
	}
}

func TestLockWithoutItsDirectory(t *testing.T) {
	_, err := configfs.NewLock(filepath.Join(t.TempDir(), "missing/lock")).Acquire(t.Context())
	if !errors.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
}

func TestLockIsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	path := filepath.Join(dir, "lock")
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if _, err := configfs.NewLock(path).Acquire(t.Context()); err == nil {
		t.Fatal("a link was followed")
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Fatal("a file was made through the link")
	}
}
