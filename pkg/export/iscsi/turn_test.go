package iscsi

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// opens counts the devices that are being opened at once; an open takes a second, or
// until end is closed.
type opens struct {
	mu        sync.Mutex
	now, most int
	end       chan struct{}
}

func (o *opens) device(string) (Device, error) {
	o.add(1)
	defer o.add(-1)
	timer := time.NewTimer(time.Second)
	if o.end != nil {
		timer.Reset(time.Hour)
	}
	select {
	case <-timer.C:
	case <-o.end:
	}
	return Device{}, nil
}

func (o *opens) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now += n
	o.most = max(o.most, o.now)
}

// open looks at devices at once, and returns how long it took.
func open(t *testing.T, e *Exporter, paths ...string) time.Duration {
	t.Helper()
	began := time.Now()
	var group sync.WaitGroup
	for _, path := range paths {
		group.Go(func() {
			if _, err := e.openDevice(t.Context(), path); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	return time.Since(began)
}

func TestDevicesOfAPoolAreOpenedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &opens{}
		e := New(Config{Device: o.device})
		if took := open(t, e, zvolDir+"tank/csi/a", zvolDir+"tank/csi/b", zvolDir+"tank/c"); o.most != 1 || took != 3*time.Second {
			t.Errorf("three of one pool: %d at once, in %s", o.most, took)
		}
		o.most = 0
		if took := open(t, e, zvolDir+"tank/csi/a", zvolDir+"dozer/csi/a"); o.most != 2 || took != time.Second {
			t.Errorf("two of two pools: %d at once, in %s", o.most, took)
		}
	})
}

// What one open that never ends holds up is not the rest.
func TestAnOpenThatHangsDelaysTheOthersALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, quick := &opens{end: make(chan struct{})}, &opens{}
		e := New(Config{Device: func(path string) (Device, error) {
			if path == zvolDir+"tank/hung" {
				return hung.device(path)
			}
			return quick.device(path)
		}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			open(t, e, zvolDir+"tank/hung")
		}()
		synctest.Wait()
		if took := open(t, e, zvolDir+"tank/a"); took != maxTurn+time.Second {
			t.Errorf("the next one took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.openDevice(ctx, zvolDir+"tank/a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that waits no longer: %v", err)
		}
		close(hung.end)
		<-done
	})
}
