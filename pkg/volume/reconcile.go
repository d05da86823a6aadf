package volume

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/op"
)

// startInterval is the pace of Run until everything is up, at first; then
// Config.Rest is, as a safety net.
const startInterval = time.Second

const (
	// maxRetry is the slowest pace until everything is up: each round lists every
	// pool that is.
	maxRetry = 15 * time.Second
	// watchInterval is how often the states of the pools are looked at, which
	// starts no command.
	watchInterval = time.Second

	// reconcileWait is how long an RPC and a reconcile wait for each other on
	// one volume.
	reconcileWait = 5 * time.Second
	// reconcileTimeout bounds the work on one volume, such as the wait for a
	// zvol whose key is not loaded.
	reconcileTimeout = 20 * time.Second
	// reconcileGrace is how long an operation may take to notice that its time is
	// over, before the round goes on without it.
	reconcileGrace = 2 * time.Second
	// reconcileWorkers is how many volumes of a pool are worked on at once, so that
	// one that waits does not delay the others.
	reconcileWorkers = 64
	// reconcileShared is how many more may wait for the exportfs of a second, which is
	// all that they lack: it does the work of all of them.
	reconcileShared = 1024
	// pulseGrace is what a step of a round may take beyond the longest command in
	// it, a listing: it reads files of the kernel's.
	pulseGrace = time.Minute
)

// Run opens the pools and keeps the kernel's exports equal to the
// publications, until ctx ends. A pool that is not there does not stop the
// others; one that is imported, or answers again, is worked on within a second.
func (s *Service) Run(ctx context.Context) {
	retry := startInterval
	for {
		seen := s.poolStates(ctx)
		err := s.Reconcile(ctx)
		s.mu.Lock()
		s.started = true
		s.mu.Unlock()
		pause := s.cfg.Rest
		if s.told.news("reconcile", err) {
			s.cfg.Log.WithError(err).Warn("not everything is up")
		}
		if err != nil {
			pause = min(retry, pause)
			retry = min(2*retry, maxRetry)
		} else {
			retry = startInterval
		}
		changed, ended := s.rest(ctx, pause, seen)
		if ended {
			return
		}
		if changed {
			retry = startInterval
		}
	}
}

// rest waits, until a pool comes, goes or changes its state.
func (s *Service) rest(ctx context.Context, pause time.Duration, seen string) (changed, ended bool) {
	end := time.NewTimer(pause)
	defer end.Stop()
	look := time.NewTicker(watchInterval)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			s.pulse.Beat()
			if s.poolStates(ctx) != seen {
				return true, false
			}
		case <-end.C:
			return false, false
		case <-ctx.Done():
			return false, true
		}
	}
}

// poolStates is what the kernel shows of every pool, without asking one.
func (s *Service) poolStates(ctx context.Context) string {
	var all strings.Builder
	for _, name := range s.order {
		state, err := s.cfg.Host.PoolState(ctx, s.pools[name].cfg.Parent)
		if err != nil {
			state = "none"
		}
		all.WriteString(name + "=" + state + " ")
	}
	return all.String()
}

// Ready reports why no volume can be served, from the last look of Run; it never
// waits. A pool that cannot be used keeps nobody from the others: an orchestrator
// sends nothing to a driver that is not ready, and may start it anew.
func (s *Service) Ready() error {
	s.mu.Lock()
	started, err := s.started, s.servers
	s.mu.Unlock()
	if !started {
		return fault.New(fault.Unavailable, "the driver is starting")
	}
	if err != nil {
		return err
	}
	var pools []error
	for _, name := range s.order {
		err := s.pools[name].unusable()
		if err == nil {
			return nil
		}
		pools = append(pools, err)
	}
	return errors.Join(pools...)
}

// Reconcile does one round. The error names each pool and each protocol's server
// that cannot be used. A single broken volume is logged and is no error.
func (s *Service) Reconcile(ctx context.Context) error {
	r := newRound(s.lookAll(ctx))
	s.pulse.Beat()
	var errs []error
	for _, protocol := range s.Protocols() {
		if err := r.before[protocol].down; err != nil {
			errs = append(errs, err)
		}
	}
	s.mu.Lock()
	s.servers = errors.Join(errs...)
	s.mu.Unlock()
	s.touched.reset()
	s.published.beginListing()
	known := map[string]*record{}
	complete := true
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, name := range s.order {
		group.Go(func() {
			records, err := s.reconcilePool(ctx, s.pools[name], r)
			r.pool(name, records, err)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				complete = false
			}
			for _, r := range records {
				known[r.uuid] = r
			}
		})
	}
	group.Wait()
	if complete {
		r.lost = s.published.forget(func(uuid string) bool { return known[uuid] != nil })
	}
	s.removeStray(ctx, r, known, complete)
	s.reportForeign(ctx)
	s.pulse.Beat()
	slices.SortFunc(errs, func(x, y error) int { return strings.Compare(x.Error(), y.Error()) })
	err := errors.Join(errs...)
	s.conclude(ctx, r, err)
	return err
}

// reconcilePool opens the pool and exports its published volumes. It returns all
// its volumes, also beside an error once they were read. A pool that does not
// answer holds it up for as long as one command may take, one that is slow for
// as long as its listing.
func (s *Service) reconcilePool(ctx context.Context, p *pool, round *round) ([]*record, error) {
	one, cancel := context.WithTimeout(ctx, s.cfg.Operation)
	defer cancel()
	if err := s.openPool(one, p); err != nil {
		return nil, s.silent(p, err)
	}
	s.pulse.Beat()
	listing, cancel := context.WithTimeout(ctx, s.patience(p.cfg.Name))
	defer cancel()
	p.index.begin()
	records, err := s.records(listing, p.cfg.Name)
	if err != nil {
		return nil, s.slow(ctx, p, err)
	}
	s.pulse.Beat()
	if err := s.reconcileVolumes(ctx, records, round); err != nil {
		return records, err
	}
	listing, cancel = context.WithTimeout(ctx, s.patience(p.cfg.Name))
	defer cancel()
	hidden, err := s.readIndex(listing, p, records)
	if err != nil {
		return records, s.slow(ctx, p, err)
	}
	s.pulse.Beat()
	s.sweep(ctx, p, hidden)
	return records, nil
}

// reconcileVolumes exports the published volumes of a pool. A broken one is
// logged and does not stop the rest.
func (s *Service) reconcileVolumes(ctx context.Context, records []*record, round *round) error {
	// Read once: the table has a line for each volume, and each volume's own look
	// at it would read them all.
	mounts, err := s.cfg.Host.Mounts(ctx)
	if err != nil {
		return err
	}
	var alone, shared []*record
	for _, r := range records {
		if r.err != nil {
			if s.told.news(r.id.String(), r.err) {
				s.log(r.id).WithError(r.err).Error("a volume is not usable")
			}
			continue
		}
		// One that is remembered as published lost its publications otherwise
		// than by a call, or gains them now: its lock decides.
		switch _, mounted := mounts[r.dataset.Name]; {
		case len(r.publications) == 0 && !s.published.has(r.uuid):
		case r.params.Protocol == NFS && mounted && !round.before[NFS].byUUID[r.uuid].Complete:
			shared = append(shared, r)
		default:
			alone = append(alone, r)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { s.reconcileEach(ctx, alone, reconcileWorkers, mounts, round) })
	both.Go(func() { s.reconcileEach(ctx, shared, reconcileShared, mounts, round) })
	both.Wait()
	return nil
}

func (s *Service) reconcileEach(ctx context.Context, list []*record, workers int, mounts map[string]string, round *round) {
	var group errgroup.Group
	group.SetLimit(workers)
	for _, r := range list {
		group.Go(func() error {
			err := s.reconcileVolume(ctx, r, mounts)
			round.trouble(r.uuid, err)
			if s.told.news(r.id.String(), err) {
				s.log(r.id).WithError(err).Error("a published volume is not exported")
			}
			return nil
		})
	}
	_ = group.Wait() // none of them returns an error
}

// reconcileVolume brings one volume's export to what ZFS says. r is what the
// listing said, and mounts where filesystems were mounted then; both are read
// again if an RPC worked on the volume since.
func (s *Service) reconcileVolume(ctx context.Context, r *record, mounts map[string]string) error {
	return s.inBackground(ctx, "reconcile", r.id.String(), "pool "+r.id.Pool, func(ctx context.Context) error {
		p, err := s.pool(r.id.Pool)
		if err != nil {
			return err
		}
		where, mounted := mounts[r.dataset.Name]
		if s.touched.has(r.id) {
			mounted = false
			if p, r, err = s.find(ctx, r.id); err != nil {
				return okIfUnknown(err)
			}
		}
		s.remember(r)
		e := s.cfg.Exporters[r.params.Protocol]
		if e == nil {
			return nil
		}
		if mounted && where == r.mountpoint(p) {
			return s.ensure(ctx, p, r, e)
		}
		return s.expose(ctx, p, r, e)
	})
}

// inBackground runs fn as the driver's own operation, which calls wait for a
// little. It returns in time even when a command does not end; the operation then
// keeps its key.
func (s *Service) inBackground(ctx context.Context, what, key, group string, fn func(context.Context) error) error {
	timeout := min(reconcileTimeout, s.cfg.Operation)
	ctx, cancel := context.WithTimeout(ctx, reconcileWait+timeout+reconcileGrace)
	defer cancel()
	defer s.pulse.Beat()
	return s.ops.Do(ctx, op.Spec{
		What: what, Keys: []string{key}, Group: group,
		Detached: true, Timeout: timeout, Wait: reconcileWait, Background: true,
	}, fn)
}

// removeStray takes down exports of this instance that belong to no volume, or
// to one without publications. Those of volumes that are gone can be told from
// those of a pool that is not imported only when every pool was read.
//
// It leaves in the round what it found.
func (s *Service) removeStray(ctx context.Context, round *round, known map[string]*record, complete bool) {
	round.after = map[string]exported{}
	for _, protocol := range s.Protocols() {
		e := s.cfg.Exporters[protocol]
		list, err := e.List(ctx)
		table := exported{byUUID: map[string]export.Status{}, err: round.before[protocol].down}
		if table.err == nil {
			table.err = err
		}
		if err != nil {
			round.after[protocol] = table
			if s.told.news("list "+protocol, err) {
				s.cfg.Log.WithError(err).WithField("protocol", protocol).Error("the kernel's exports cannot be read")
			}
			continue
		}
		for _, st := range list {
			table.byUUID[st.UUID] = st
			r := known[st.UUID]
			// One that was published when it was listed is its own reconcile's.
			if s.published.has(st.UUID) || r == nil && !complete || r != nil && (r.err != nil || len(r.publications) > 0) {
				continue
			}
			entry := s.cfg.Log.WithFields(logrus.Fields{"protocol": protocol, "uuid": st.UUID})
			if err := s.removeExport(ctx, e, st.UUID, known); err != nil {
				table.unwanted++
				if s.told.news("export "+st.UUID, err) {
					entry.WithError(err).Error("an export that no volume wants could not be removed")
				}
				continue
			}
			delete(table.byUUID, st.UUID)
			round.repaired(RemovedExport)
			entry.Warn("removed an export that no volume wants")
		}
		round.after[protocol] = table
	}
}

// removeExport removes a stray export, under its volume's lock where it has one.
func (s *Service) removeExport(ctx context.Context, e export.Exporter, uuid string, known map[string]*record) error {
	key := "export " + uuid
	if r := known[uuid]; r != nil {
		key = r.id.String()
	}
	return s.inBackground(ctx, "remove stray export", key, "", func(ctx context.Context) error {
		if s.published.has(uuid) {
			return nil
		}
		return e.Remove(ctx, uuid)
	})
}

func (s *Service) log(id ident.VolumeID) logrus.FieldLogger {
	return s.cfg.Log.WithField("volume", id.String())
}
