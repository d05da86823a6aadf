package main

import (
	"context"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// step is one operation of a life, for the volume with that number. Its name is
// empty when it is not measured.
type step struct {
	op string
	do func(ctx context.Context, i int) error
}

// inParallel calls do for 0 to calls-1 from that many callers and returns how
// long each took.
func inParallel(ctx context.Context, calls, callers int, do func(context.Context, int) error) ([]time.Duration, error) {
	took := make([]time.Duration, calls)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := range calls {
		group.Go(func() error {
			start := time.Now()
			err := do(ctx, i)
			took[i] = time.Since(start)
			return err
		})
	}
	return took, group.Wait()
}

// percentile returns a nearest-rank percentile in milliseconds.
func percentile(list []time.Duration, p float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Millisecond)
}
