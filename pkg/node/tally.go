package node

import (
	"maps"
	"sync"
	"time"
)

// Tally is what the last sweep of Run has seen, and what all of them have done.
type Tally struct {
	// Ended is when the sweep was over; zero before the first.
	Ended time.Time
	// Sweeps counts the sweeps since the start, Failed those that could not look,
	// and Removed the orphans of which they removed something.
	Sweeps, Failed, Removed uint64
	// Staged counts the stage records by protocol.
	Staged map[string]int
	// Sessions are this instance's, and Lost those of them that carry nothing now.
	Sessions, Lost int
	// Orphans are the targets that no stage record claims, as the sweep found them.
	Orphans int
}

// Tally returns what the last sweep saw; it never waits.
func (s *Service) Tally() Tally { return s.tally.get() }

// Stuck reports that Run hangs where nothing should, or nil.
func (s *Service) Stuck() error { return s.pulse.Stuck() }

// countStaged counts what is staged, after a sweep: the records are files.
func (s *Service) countStaged() {
	records, err := s.records.stages("")
	if err != nil {
		s.Log.WithError(err).Debug("the stage records cannot be counted") // StorageHealth and every call say so
		return
	}
	staged := map[string]int{}
	for _, protocol := range s.protocols() {
		staged[protocol] = 0
	}
	for _, r := range records {
		staged[r.Protocol]++
	}
	s.tally.foundStaged(staged)
}

// tally is a Tally that is being kept.
type tally struct {
	mu sync.Mutex
	Tally
}

func (t *tally) get() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.Tally
	now.Staged = maps.Clone(t.Staged)
	return now
}

func (t *tally) swept(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Ended = time.Now()
	t.Sweeps++
	if err != nil {
		t.Failed++
	}
}

func (t *tally) foundSessions(all []orphan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Sessions, t.Lost = 0, 0
	for _, o := range all {
		t.Sessions += o.Sessions
		t.Lost += o.Lost
	}
}

func (t *tally) foundOrphans(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Orphans = n
}

func (t *tally) foundStaged(byProtocol map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Staged = byProtocol
}

func (t *tally) removed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Removed++
}
