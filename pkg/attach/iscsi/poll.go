package iscsi

import (
	"context"
	"errors"
	"time"
)

// The interval between two looks: short at first, since most things are there
// at once, and never long.
const (
	firstInterval = 10 * time.Millisecond
	lastInterval  = 500 * time.Millisecond
)

// errLate is a poll that ended at its own limit.
var errLate = errors.New("not in time")

// poll calls look until it is done or fails. It ends with ctx's error when ctx
// ends, and with errLate after limit.
func poll(ctx context.Context, limit time.Duration, look func() (done bool, err error)) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	for interval := firstInterval; ; interval = min(interval*3/2, lastInterval) {
		if done, err := look(); done || err != nil {
			return err
		}
		next := time.NewTimer(interval)
		select {
		case <-next.C:
		case <-end.C:
			next.Stop()
			return errLate
		case <-ctx.Done():
			next.Stop()
			return ctx.Err()
		}
	}
}
