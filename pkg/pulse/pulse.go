// Package pulse tells a loop that works from one that hangs. A loop beats after
// each of its steps, each of which has a bound; one that does not beat for
// longer waits for something that has none.
package pulse

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Pulse is the pulse of one loop.
type Pulse struct {
	what  string
	limit time.Duration
	born  time.Time
	last  atomic.Int64 // since born, by the clock that only runs forward
}

// New returns the pulse of a loop, which beats now for the first time. limit is
// more than any of its steps may take.
func New(what string, limit time.Duration) *Pulse {
	return &Pulse{what: what, limit: limit, born: time.Now()}
}

// Beat notes that a step has ended.
func (p *Pulse) Beat() { p.last.Store(int64(time.Since(p.born))) }

// Stuck reports that the loop hangs, or nil.
func (p *Pulse) Stuck() error {
	silent := time.Since(p.born) - time.Duration(p.last.Load())
	if silent <= p.limit {
		return nil
	}
	return fmt.Errorf("%s has made no step for %s, and none may take more than %s", p.what, silent.Round(time.Second), p.limit)
}
