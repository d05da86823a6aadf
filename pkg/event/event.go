// Package event tells users of a Kubernetes cluster, by events, of conditions on
// which somebody must act. It only tells what rounds of the reconcile have seen:
// it looks at no pool, and nobody waits for it.
//
// A volume's own condition is told on its claim. What is wrong with a whole pool
// or server is told once, on the controller's pod, and not on each volume.
package event

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/volume"
)

const (
	// lookInterval is how often the last round is looked at.
	lookInterval = 5 * time.Second
	// settle is how long a condition lasts before it is told: what the next round
	// puts right concerns nobody.
	settle = 20 * time.Second
	// repeat is how often a condition that lasts is told. The API server forgets an
	// event after an hour.
	repeat = 30 * time.Minute
	// burst is how many events may be told at once, and pace how long each takes to
	// come back: an hour sees no more than 385.
	burst = 25
	pace  = 10 * time.Second
	// passTimeout bounds one pass, so that what is told is not old.
	passTimeout = time.Minute
	// minRest and maxRest are between two passes while the API server fails.
	minRest, maxRest = 10 * time.Second, 5 * time.Minute
)

// API is what is needed of pkg/kube.
type API interface {
	Get(ctx context.Context, path string, into any) error
	Create(ctx context.Context, path string, object, into any) error
	Patch(ctx context.Context, path string, fields, into any) error
}

// Config is what a Teller is made of.
type Config struct {
	// Driver is the driver's name, and the events' source.
	Driver string
	// Pod is the controller's own. Without a name nothing is told of whole pools.
	Pod Reference
	API API
	// Round returns the last round, and never waits.
	Round func() volume.Round
	Log   logrus.FieldLogger
}

// Teller tells of conditions.
type Teller struct {
	cfg    Config
	states map[string]*state // by finding.key
	looked time.Time         // when the round ended that was looked at last
	tokens bucket
	rest   time.Duration
	idle   time.Time // until when nothing is sent
	failed string    // the error that the log knows
	// closed are the namespaces of which the log knows that they take no event.
	closed map[string]bool
}

// state is what is known of one thing.
type state struct {
	finding
	// since is when it was first seen so, told when that was last told; of what
	// nobody may be told, when it was last tried.
	since, told time.Time
	// heard is the reason that was told last, of all that it had.
	heard string
}

// New returns a Teller.
func New(cfg Config) *Teller {
	return &Teller{cfg: cfg, states: map[string]*state{}, tokens: bucket{left: burst}, closed: map[string]bool{}}
}

// errForbidden says that the service account may not do what is needed.
var errForbidden = errors.New("forbidden")

// Run tells until ctx ends, or until the API server says that this account may
// not.
func (t *Teller) Run(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for t.pass(ctx, time.Now()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// pass looks and tells once; false when there is no use in another.
func (t *Teller) pass(ctx context.Context, now time.Time) bool {
	t.look(now, t.cfg.Round())
	if now.Before(t.idle) {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	err := t.tellAll(limited, now)
	switch {
	case errors.Is(err, errForbidden):
		t.cfg.Log.WithError(err).Warn("no events are told to the cluster")
		return false
	case err == nil:
		t.rest, t.failed = 0, ""
	case ctx.Err() == nil:
		t.rest = min(max(2*t.rest, minRest), maxRest)
		t.idle = now.Add(t.rest)
		if text := err.Error(); text != t.failed {
			t.failed = text
			t.cfg.Log.WithError(err).Warn("events are told later")
		}
	}
	return true
}

// look compares a round with what was known.
func (t *Teller) look(now time.Time, r volume.Round) {
	if r.Ended.IsZero() || r.Ended.Equal(t.looked) {
		return
	}
	t.looked = r.Ended
	there := map[string]bool{}
	for _, f := range findings(r) {
		there[f.key] = true
		st := t.states[f.key]
		switch {
		case f.unknown:
		case f.reason == "":
			if st != nil && st.heard == "" {
				delete(t.states, f.key)
			} else if st != nil && st.reason != Recovered {
				f.reason, f.message = Recovered, st.heard+" is over"
				t.states[f.key] = &state{finding: f, since: now.Add(-settle), heard: st.heard}
			}
		case st == nil:
			t.states[f.key] = &state{finding: f, since: now}
		case st.reason != f.reason:
			t.states[f.key] = &state{finding: f, since: now, heard: st.heard}
		default:
			st.finding = f
		}
	}
	for key := range t.states {
		if !there[key] {
			delete(t.states, key) // it was deleted
		}
	}
}

// due are the things to be told now: those that nobody knows yet first, and
// among them those of many volumes.
func (t *Teller) due(now time.Time) []*state {
	var list []*state
	for _, st := range t.states {
		if st.told.IsZero() && now.Sub(st.since) >= settle || !st.told.IsZero() && now.Sub(st.told) >= repeat {
			list = append(list, st)
		}
	}
	slices.SortFunc(list, func(a, b *state) int {
		if c := a.told.Compare(b.told); c != 0 {
			return c
		}
		if a.wide() != b.wide() {
			if a.wide() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.key, b.key)
	})
	return list
}

// tellAll tells what is due, as far as the pace allows. What fails is due again.
func (t *Teller) tellAll(ctx context.Context, now time.Time) error {
	for _, st := range t.due(now) {
		if !t.tokens.take(now) {
			return nil
		}
		if err := t.tell(ctx, st, now); err != nil {
			return err
		}
		st.told, st.heard = now, st.reason
		if st.reason == Recovered {
			delete(t.states, st.key)
		}
	}
	return nil
}

// bucket is what keeps the pace.
type bucket struct {
	left float64
	at   time.Time
}

func (b *bucket) take(now time.Time) bool {
	if !b.at.IsZero() {
		b.left = min(burst, b.left+now.Sub(b.at).Seconds()/pace.Seconds())
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
