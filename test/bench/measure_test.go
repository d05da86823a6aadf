package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	list := []time.Duration{4 * time.Millisecond, 1 * time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond}
	for p, want := range map[float64]float64{50: 2, 99: 4, 1: 1, 75: 3} {
		if got := percentile(list, p); got != want {
			t.Errorf("percentile %v: %v, want %v", p, got, want)
		}
	}
}

func TestInParallel(t *testing.T) {
	var now, most, sum atomic.Int64
	took, err := inParallel(t.Context(), 20, 3, func(_ context.Context, i int) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		sum.Add(int64(i))
		now.Add(-1)
		return nil
	})
	if err != nil || len(took) != 20 || sum.Load() != 190 || most.Load() > 3 {
		t.Errorf("%d calls, sum %d, %d at once, %v", len(took), sum.Load(), most.Load(), err)
	}
	broken := errors.New("broken")
	if _, err := inParallel(t.Context(), 3, 1, func(context.Context, int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
