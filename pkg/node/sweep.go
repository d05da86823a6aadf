package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
)

const (
	// orphanTimeout bounds the removal of one orphan; the next sweep tries again.
	orphanTimeout = 40 * time.Second
	// sweepWait is how long a stage waits for a sweep that is removing what is
	// left of an earlier one.
	sweepWait = 5 * time.Second
	// sweepLimit is more than a step of a sweep may take, the removal of one
	// orphan, and what else it does, which reads files.
	sweepLimit   = 3 * time.Minute
	beatInterval = 10 * time.Second
	// sweepWorkers is how many orphans are removed at once, so that those of a
	// server that does not answer do not delay the others.
	sweepWorkers = 4
)

// left are the orphans that could not be removed, by IQN, and the kind of the
// reason: each is told once.
type left struct {
	mu    sync.Mutex
	kinds map[string]error
}

// tell notes an orphan that stays, and reports whether that is news.
func (l *left) tell(iqn string, kind error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, told := l.kinds[iqn]
	if l.kinds == nil {
		l.kinds = map[string]error{}
	}
	l.kinds[iqn] = kind
	return !told || old != kind
}

// keep forgets all but some.
func (l *left) keep(still map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for iqn := range l.kinds {
		if !still[iqn] {
			delete(l.kinds, iqn)
		}
	}
}

// Run sweeps at once and then after each pause of Config.Rest, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var last string
	for {
		err := s.Sweep(ctx)
		s.tally.swept(err)
		s.countStaged()
		s.pulse.Beat()
		text := ""
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != last {
			s.Log.WithError(err).Warn("what is left of volumes that are not staged cannot be looked for")
		}
		last = text
		if !s.rest(ctx) {
			return
		}
	}
}

// rest waits for the next sweep; false when ctx has ended.
func (s *Service) rest(ctx context.Context) bool {
	end := time.NewTimer(s.Rest)
	defer end.Stop()
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			s.pulse.Beat()
		case <-end.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// Sweep removes sessions and node records that this node made for volumes of
// this instance and that no stage record claims: those of a volume whose record
// is lost, or of a daemon that was killed at the wrong moment. What anything may
// use stays and is told once in the log, and so is what cannot be removed. It
// unmounts nothing, and looks at no mount that may hang.
//
// An error means that nothing was looked at: without the records nothing is an
// orphan.
func (s *Service) Sweep(ctx context.Context) error {
	orphans, err := s.orphans(ctx)
	if err != nil {
		return err
	}
	s.tally.foundOrphans(len(orphans))
	still := map[string]bool{}
	var group errgroup.Group
	group.SetLimit(sweepWorkers)
	for _, o := range orphans {
		still[o.IQN] = true
		group.Go(func() error { s.sweepOne(ctx, o); return nil })
	}
	s.left.keep(still)
	return group.Wait()
}

// orphan is an attachment that no stage record claims.
type orphan struct {
	attach.Attachment
	leavings
}

// orphans lists the attachments of this instance that are claimed by no record.
// What is attached is listed first: a stage writes its record before it
// attaches.
func (s *Service) orphans(ctx context.Context) ([]orphan, error) {
	var all []orphan
	for _, protocol := range s.protocols() {
		l, ok := s.Attachers[protocol].(leavings)
		if !ok {
			continue
		}
		list, err := l.Attachments(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			if _, ours := s.Naming.UUID(a.IQN); ours {
				all = append(all, orphan{a, l})
			}
		}
	}
	s.tally.foundSessions(all)
	if len(all) == 0 {
		return nil, nil
	}
	claimed, err := s.claimed()
	if err != nil {
		return nil, err
	}
	var orphans []orphan
	for _, o := range all {
		if !claimed[o.IQN] {
			orphans = append(orphans, o)
		}
	}
	return orphans, nil
}

// claimed are the targets of all stage records, whatever their state: an unstage
// ends a record, and nothing else.
func (s *Service) claimed() (map[string]bool, error) {
	records, err := s.records.stages("")
	if err != nil {
		return nil, err
	}
	claimed := map[string]bool{}
	for _, r := range records {
		claimed[r.Target.IQN] = true
	}
	return claimed, nil
}

// sweepOne removes one orphan, under the lock that a stage of its target takes.
// The sweep goes on after orphanTimeout even when a tool cannot be killed; the
// operation then keeps the target until the tool has ended.
func (s *Service) sweepOne(all context.Context, o orphan) {
	ctx, cancel := context.WithTimeout(all, s.orphanTimeout)
	defer cancel()
	defer s.pulse.Beat()
	err := s.Operations.Do(ctx, op.Spec{
		What: "sweep", Keys: targetKeys(o.IQN), Group: "orphans at " + o.Server, Background: true,
	}, func(ctx context.Context) error {
		claimed, err := s.claimed()
		if err != nil || claimed[o.IQN] {
			return err
		}
		gone, err := o.DetachOrphan(ctx, o.IQN, s.Naming.Initiator(s.NodeID.Name))
		if len(gone) > 0 {
			s.tally.removed()
			s.Log.WithFields(logrus.Fields{"target": o.IQN, "removed": gone}).
				Warn("removed what was left of a volume that is not staged")
		}
		return err
	})
	switch {
	case err == nil, errors.Is(err, fault.Busy), all.Err() != nil:
		return
	case s.left.tell(o.IQN, fault.Kind(err)):
		s.Log.WithError(err).WithField("target", o.IQN).Warn("what is left of a volume that is not staged stays")
	}
}

// targetKeys are what excludes a stage of a target and the sweep of it.
func targetKeys(iqn string) []string {
	if iqn == "" {
		return nil
	}
	return []string{"target " + iqn}
}
