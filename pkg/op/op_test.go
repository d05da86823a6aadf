package op_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held is an operation that a test lets end.
type held struct {
	end  chan struct{}
	done chan error // what its caller got
	ctx  context.Context
}

// hold starts an operation that runs until its end is closed, whatever its
// context says, and returns once it runs.
func hold(ctx context.Context, t *op.Table, s op.Spec) *held {
	h := &held{end: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		h.done <- t.Do(ctx, s, func(ctx context.Context) error {
			h.ctx = ctx
			<-h.end
			return nil
		})
	}()
	synctest.Wait()
	return h
}

func nothing(context.Context) error { return nil }

func wantKind(t *testing.T, err, kind error) {
	t.Helper()
	if fault.Kind(err) != kind {
		t.Errorf("got %v, want the kind %v", err, kind)
	}
}

func TestBusySaysSinceWhenAndWithWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		began := time.Now()
		h := hold(t.Context(), table, op.Spec{What: "DeleteVolume", Keys: []string{"tank/a"}})
		time.Sleep(90 * time.Second)
		err := table.Do(t.Context(), op.Spec{What: "CreateVolume", Keys: []string{"tank/a"}}, nothing)
		wantKind(t, err, fault.Busy)
		for _, part := range []string{"DeleteVolume", began.UTC().Format(time.RFC3339), "(1m30s)"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
		if time.Since(began) != 90*time.Second {
			t.Error("a busy key was waited for")
		}
		close(h.end)
		if err := <-h.done; err != nil {
			t.Error(err)
		}
		if err := table.Do(t.Context(), op.Spec{Keys: []string{"tank/a"}}, nothing); err != nil {
			t.Errorf("the one after the end: %v", err)
		}
	})
}

func TestKeysAreTakenAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		h := hold(t.Context(), table, op.Spec{Keys: []string{"b", "c", "b"}})
		for _, keys := range [][]string{{"a", "b"}, {"c", "a"}, {"b"}, {"c"}} {
			wantKind(t, table.Do(t.Context(), op.Spec{Keys: keys}, nothing), fault.Busy)
		}
		for _, keys := range [][]string{{"a"}, nil, {"d", "a"}} {
			if err := table.Do(t.Context(), op.Spec{Keys: keys}, nothing); err != nil {
				t.Errorf("keys %q: %v", keys, err)
			}
		}
		close(h.end)
		synctest.Wait()
		if err := table.Do(t.Context(), op.Spec{Keys: []string{"a", "b", "c"}}, nothing); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAnswerComesBackAsItIs(t *testing.T) {
	if err := op.NewTable().Do(t.Context(), op.Spec{Keys: []string{"a"}}, func(context.Context) error { return io.EOF }); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

func TestNothingRunsForACallerThatHasLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, detached := range []bool{false, true} {
		err := op.NewTable().Do(ctx, op.Spec{Detached: detached}, func(context.Context) error { t.Error("it ran"); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

func TestADetachedOperationOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type mark struct{}
		table := op.NewTable()
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), mark{}, "kept"), 10*time.Second)
		defer cancel()
		began := time.Now()
		spec := op.Spec{What: "CreateVolume", Keys: []string{"tank/a"}, Detached: true, Timeout: 2 * time.Minute}
		h := hold(ctx, table, spec)

		err := <-h.done
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "CreateVolume") || time.Since(began) != 10*time.Second {
			t.Errorf("after %s the caller got %v", time.Since(began), err)
		}
		if h.ctx.Err() != nil || h.ctx.Value(mark{}) != "kept" {
			t.Error("the operation ended with its caller, or lost its values")
		}
		if end, ok := h.ctx.Deadline(); !ok || end != began.Add(2*time.Minute) {
			t.Errorf("it has the deadline %s, %t", end, ok)
		}
		wantKind(t, table.Do(t.Context(), spec, nothing), fault.Busy)
		if r := table.Running(); len(r) != 1 || r[0].Overdue {
			t.Errorf("running: %+v", r)
		}
		time.Sleep(2 * time.Minute)
		if r := table.Running(); len(r) != 1 || !r[0].Overdue || h.ctx.Err() != context.DeadlineExceeded {
			t.Errorf("past its own deadline: %+v", r)
		}
		wantKind(t, table.Do(t.Context(), spec, nothing), fault.Busy)
		close(h.end)
		synctest.Wait()
		if err := table.Do(t.Context(), spec, nothing); err != nil {
			t.Errorf("the one after the end: %v", err)
		}
	})
}

func TestAnOperationThatIsNotDetachedEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		h := hold(ctx, table, op.Spec{What: "NodeStageVolume", Keys: []string{"a"}, Timeout: time.Hour})
		cancel()
		if err := <-h.done; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller got %v", err)
		}
		if h.ctx.Err() == nil {
			t.Error("its context did not end")
		}
		// Its child has not ended yet, so the key is not free.
		wantKind(t, table.Do(t.Context(), op.Spec{Keys: []string{"a"}}, nothing), fault.Busy)
		if r := table.Running(); len(r) != 1 || !r[0].Overdue {
			t.Errorf("running: %+v", r)
		}
		close(h.end)
		synctest.Wait()
		if r := table.Running(); len(r) != 0 {
			t.Errorf("after the end: %+v", r)
		}
	})
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	for _, c := range []struct {
		caller, own time.Duration
		detached    bool
		want        time.Duration // 0 is none
	}{
		{0, time.Minute, false, time.Minute},
		{time.Second, time.Minute, false, time.Second},
		{time.Minute, time.Second, false, time.Second},
		{time.Second, time.Minute, true, time.Minute},
		{time.Second, 0, false, time.Second},
		{time.Second, 0, true, 0},
		{0, 0, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, began := t.Context(), time.Now()
			if c.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.caller)
				defer cancel()
			}
			err := op.NewTable().Do(ctx, op.Spec{Detached: c.detached, Timeout: c.own}, func(ctx context.Context) error {
				end, ok := ctx.Deadline()
				if ok != (c.want > 0) || ok && end.Sub(began) != c.want {
					t.Errorf("%+v: deadline %s, %t", c, end.Sub(began), ok)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		holder, caller op.Spec
		ends           time.Duration // when the holder ends
		took           time.Duration
		want           error
	}{
		"a call does not wait for a call": {
			op.Spec{}, op.Spec{Wait: time.Minute}, time.Second, 0, fault.Busy},
		"a call waits for the driver's own work": {
			op.Spec{Background: true}, op.Spec{Wait: time.Minute}, time.Second, time.Second, nil},
		"a call waits for it no longer than it may": {
			op.Spec{Background: true}, op.Spec{Wait: time.Second}, time.Minute, time.Second, fault.Busy},
		"a call that may not wait does not": {
			op.Spec{Background: true}, op.Spec{}, time.Second, 0, fault.Busy},
		"the driver's own work waits for a call": {
			op.Spec{}, op.Spec{Background: true, Wait: time.Minute}, time.Second, time.Second, nil},
		"and no longer than it may": {
			op.Spec{}, op.Spec{Background: true, Wait: time.Second}, time.Minute, time.Second, fault.Busy},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := op.NewTable()
				c.holder.Keys, c.caller.Keys = []string{"a"}, []string{"a"}
				h := hold(t.Context(), table, c.holder)
				time.AfterFunc(c.ends, func() { close(h.end) })
				began := time.Now()
				err := table.Do(t.Context(), c.caller, nothing)
				if fault.Kind(err) != c.want || time.Since(began) != c.took {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				<-h.done
			})
		})
	}
}

func TestAWaitingCallerLeavesAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		h := hold(t.Context(), table, op.Spec{Keys: []string{"a"}, Background: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := table.Do(ctx, op.Spec{Keys: []string{"a"}, Wait: time.Minute}, func(context.Context) error { t.Error("it ran"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		close(h.end)
		<-h.done
	})
}

func TestAPanicIsAnErrorAndFreesTheKey(t *testing.T) {
	table := op.NewTable()
	err := table.Do(t.Context(), op.Spec{Keys: []string{"a"}}, func(context.Context) error { return explode() })
	var p *op.PanicError
	if !errors.As(err, &p) || p.Value != "boom" || err.Error() != "panic: boom" {
		t.Fatalf("got %#v", err)
	}
	if !strings.Contains(string(p.Stack), "explode") {
		t.Errorf("the stack does not show where: %s", p.Stack)
	}
	if err := table.Do(t.Context(), op.Spec{Keys: []string{"a"}}, nothing); err != nil {
		t.Error(err)
	}
}

func explode() error { panic("boom") }

func TestAPanicAfterTheCallerLeftFreesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := table.Do(ctx, op.Spec{Keys: []string{"a"}, Detached: true}, func(context.Context) error {
			time.Sleep(time.Minute)
			return explode()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Hour)
		if err := table.Do(t.Context(), op.Spec{Keys: []string{"a"}}, nothing); err != nil {
			t.Error(err)
		}
	})
}

func TestRunningListsTheOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		began := time.Now()
		keys := []string{"a"}
		first := hold(t.Context(), table, op.Spec{What: "first", Keys: keys, Group: "pool tank"})
		keys[0] = "changed by the caller"
		time.Sleep(time.Second)
		second := hold(t.Context(), table, op.Spec{What: "second"})
		r := table.Running()
		if len(r) != 2 || r[0].What != "first" || r[1].What != "second" || !slices.Equal(r[0].Keys, []string{"a"}) ||
			r[0].Group != "pool tank" || r[0].Since != began || r[1].Since != began.Add(time.Second) {
			t.Errorf("got %+v", r)
		}
		close(first.end)
		close(second.end)
	})
}

func TestDrainWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		if err := table.Drain(t.Context()); err != nil {
			t.Errorf("nothing runs: %v", err)
		}
		left, cancel := context.WithCancel(t.Context())
		a := hold(left, table, op.Spec{What: "CreateVolume", Detached: true, Keys: []string{"a"}})
		b := hold(t.Context(), table, op.Spec{What: "CreateVolume"})
		cancel() // a's caller does not wait for it
		time.AfterFunc(time.Minute, func() { close(a.end) })
		time.AfterFunc(time.Second, func() { close(b.end) })

		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := table.Drain(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "CreateVolume still runs") {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		if err := table.Drain(t.Context()); err != nil || time.Since(began) != 30*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestNeverTwoForAKey(t *testing.T) {
	table := op.NewTable()
	counts := map[string]*int{"a": new(int), "b": new(int), "c": new(int)} // no lock: the table is the lock
	sets := [][]string{{"a"}, {"a", "b"}, {"b", "a"}, {"c", "b", "a"}, {"b", "c"}}
	var busy, done sync.Map
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			spec := op.Spec{What: "count", Keys: sets[i%len(sets)], Background: i%2 == 0, Wait: time.Minute, Detached: i%3 == 0}
			err := table.Do(t.Context(), spec, func(context.Context) error {
				for _, k := range spec.Keys {
					*counts[k]++
				}
				return nil
			})
			switch {
			case err == nil:
				done.Store(i, spec.Keys)
			case fault.Kind(err) == fault.Busy && !spec.Background:
				busy.Store(i, true)
			default:
				t.Errorf("%d: %v", i, err)
			}
			_ = table.Running()
		})
	}
	all.Wait()
	want := map[string]int{}
	done.Range(func(_, keys any) bool {
		for _, k := range keys.([]string) {
			want[k]++
		}
		return true
	})
	for k, n := range counts {
		if *n != want[k] || *n == 0 {
			t.Errorf("key %s: counted %d, want %d", k, *n, want[k])
		}
	}
}

func TestTheCallAfterAnAnswerIsNeverBusy(t *testing.T) {
	table := op.NewTable()
	for i := range 2000 {
		if err := table.Do(t.Context(), op.Spec{Keys: []string{"a"}}, nothing); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}
