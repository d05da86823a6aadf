package iscsi

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// C10: whoever changes the tree holds the lock, and waits no longer than its
// caller.
func TestC10OneWriter(t *testing.T) {
	h := fakeHost(t)
	lock := filepath.Join(t.TempDir(), "lock")
	i := h.instanceWith(t, "a", func(c *Config) { c.LockPath = lock })
	v := grants(h.volume(t, 1), chapA)
	release, err := configfs.NewLock(lock).Acquire(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	changes := i.changes(t, func() {
		if err := i.Ensure(ctx, v); !errors.Is(err, fault.Unavailable) {
			t.Errorf("Ensure: %v", err)
		}
		if err := i.Remove(ctx, v.UUID); !errors.Is(err, fault.Unavailable) {
			t.Errorf("Remove: %v", err)
		}
	})
	if len(changes) > 0 {
		t.Errorf("changed without the lock: %v", changes)
	}
	// Looking needs no lock.
	if _, err := i.List(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := i.Sessions(t.Context(), v.UUID); err != nil {
		t.Error(err)
	}
	release()
	i.ensure(t, v)
	// Nor does what is complete: a round over all volumes delays no call.
	release, err = configfs.NewLock(lock).Acquire(t.Context())
	must(t, err)
	i.ensure(t, v)
	release()
	i.inject.Observe(func(fake.Op) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if release, err := configfs.NewLock(lock).Acquire(ctx); err == nil {
			release()
			t.Error("the lock is free in the middle of Remove")
		}
	})
	i.remove(t, v)
}

func TestACallThatEndsStopsBetweenOperations(t *testing.T) {
	h := fakeHost(t)
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	ctx, cancel := context.WithCancel(t.Context())
	changes := 0
	i.inject.Observe(func(op fake.Op) {
		if op.Name == "read" || op.Name == "list" {
			return
		}
		if changes++; changes == 5 {
			cancel()
		}
	})
	if err := i.Ensure(ctx, v); !errors.Is(err, context.Canceled) {
		t.Errorf("Ensure: %v", err)
	}
	if changes != 5 {
		t.Errorf("%d changes, the caller left after 5", changes)
	}
	i.inject.Observe(nil)
	for _, err := range []error{i.Ensure(ctx, v), i.Remove(ctx, v.UUID)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
	}
	if _, err := i.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v", err)
	}
	i.remove(t, v)
}
