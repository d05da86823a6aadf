package volume

import (
	"context"
	"errors"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

const (
	// answerTime is how long a pool may take to say that it is there, after it was
	// not listed in time.
	answerTime = 10 * time.Second
	// maxPatience is how many times the bound of an operation a listing may take
	// at most.
	maxPatience = 8
)

// patience is how long what reads a whole pool may take: a command's time, and
// more where that was not enough.
func (s *Service) patience(pool string) time.Duration {
	p := s.pools[pool]
	if p == nil {
		return s.cfg.Operation
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.listing, s.cfg.Operation)
}

// slow is what a listing says that did not end in time. Thousands of volumes on
// slow disks are no reason to refuse calls: of a pool that answers the next
// listing gets twice the time, and one that does not is unusable.
func (s *Service) slow(ctx context.Context, p *pool, err error) error {
	if !timedOut(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(answerTime, s.cfg.Operation))
	defer cancel()
	if err := s.openPool(ctx, p); err != nil {
		return s.silent(p, err)
	}
	took := s.patience(p.cfg.Name)
	next := min(2*took, maxPatience*s.cfg.Operation)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listing = next
	return fault.New(fault.Unavailable, "pool %q answers, but is not listed within %s; the next time it may take %s: %w", p.cfg.Name, took, next, err)
}

// silent makes a pool that did not answer in time unusable until it was opened
// again, so that no call waits for it.
func (s *Service) silent(p *pool, err error) error {
	if !timedOut(err) {
		return err
	}
	err = fault.New(fault.Unavailable, "pool %q does not answer: see `zpool status` and the running commands: %w", p.cfg.Name, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err
}

// timedOut tells whether an operation did not end in time, now or an earlier one
// that still runs.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fault.Busy)
}
