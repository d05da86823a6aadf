package volume

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Round is what the last round of Run has seen, and what all of them have done.
// It is made while a round runs, and reading it asks nobody: neither a pool nor a
// server that does not answer holds up who reads.
type Round struct {
	// Ended is when the round was over, zero before the first; Took is how long it
	// was.
	Ended time.Time
	Took  time.Duration
	// Err names each pool and each protocol's server that cannot be used.
	Err error
	// Pools are in the order of the configuration.
	Pools []PoolRound
	// Unwanted counts by protocol the exports of this instance that no volume
	// wants, and that could not be removed.
	Unwanted map[string]int
	// Rounds counts the rounds since the start, Failed those that ended with an
	// error.
	Rounds, Failed uint64
	// Repairs counts by kind what the rounds put right.
	Repairs map[Repair]uint64
	// Lost are volumes that were published when their dataset went away, which no
	// call of the driver's does: the last maxLost since the start.
	Lost []Entry
}

// maxLost bounds how many lost volumes are told of.
const maxLost = 100

// Repair is a kind of what rounds put right.
type Repair string

// The kinds of repairs.
const (
	// RepairedExport: a published volume that was not exported to all of its nodes
	// is again, as all are after a boot.
	RepairedExport Repair = "export"
	// RemovedExport: an export that no volume wants was removed.
	RemovedExport Repair = "unwanted"
)

// PoolRound is one pool.
type PoolRound struct {
	// Name is the pool's in volume ids.
	Name, Parent string
	// State is as zpool(8) prints it; "" when the pool is not imported.
	State string
	// Err says why the pool cannot be used, Unlisted why the round could not read
	// it although it can be. All else is then as the last round saw that could, but
	// for the conditions of a pool that cannot be used.
	Err, Unlisted error
	// Condition is what is wrong with the pool, and so with all of its volumes, or
	// nil.
	Condition *Condition
	// UsedBytes and AvailableBytes are the parent's.
	UsedBytes, AvailableBytes int64
	// Volumes are sorted by id. Used bytes and other tools' snapshots are not
	// read.
	Volumes []Seen
	// Snapshots are those of volumes and of deleted ones, by protocol.
	Snapshots map[string]int
	// Deleted are the deleted volumes that something still needs.
	Deleted int
}

// Seen is a volume as a round saw it.
type Seen struct {
	Entry
	// Sessions are the initiators that are logged in (iscsi).
	Sessions int
	// Trouble is why the round could not export it, or "".
	Trouble string
}

// Published reports that it is published to some node.
func (s Seen) Published() bool { return len(s.PublishedTo) > 0 }

// Exported reports that it is exported to every node that it is published to.
func (s Seen) Exported() bool { return s.Published() && s.Export == ExportOpen }

// Last returns the last round; it never waits. It must not be changed.
func (s *Service) Last() Round {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Stuck reports that Run hangs where nothing should, or nil.
func (s *Service) Stuck() error { return s.pulse.Stuck() }

// round is a round that runs.
type round struct {
	began time.Time
	// before and after are the kernel's tables at its begin and at its end.
	before, after map[string]exported

	mu       sync.Mutex
	records  map[string][]*record // by pool
	errs     map[string]error     // by pool
	troubles map[string]error     // by uuid
	repairs  map[Repair]uint64
	lost     map[string]bool // uuids of published volumes that no listing shows any more
}

func newRound(before map[string]exported) *round {
	return &round{
		began: time.Now(), before: before, records: map[string][]*record{}, errs: map[string]error{},
		troubles: map[string]error{}, repairs: map[Repair]uint64{},
	}
}

// pool notes the volumes of a pool, and why it could not be worked on.
func (r *round) pool(name string, records []*record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[name], r.errs[name] = records, err
}

func (r *round) trouble(uuid string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles[uuid] = err
}

func (r *round) repaired(kind Repair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repairs[kind]++
}

// conclude makes a Round of what a round has seen.
func (s *Service) conclude(ctx context.Context, r *round, err error) {
	old := s.Last()
	now := Round{Err: err, Unwanted: map[string]int{}, Rounds: old.Rounds + 1, Failed: old.Failed, Repairs: map[Repair]uint64{}}
	if err != nil {
		now.Failed++
	}
	for i, name := range s.order {
		was := PoolRound{Name: name, Parent: s.pools[name].cfg.Parent}
		if len(old.Pools) > 0 {
			was = old.Pools[i]
		}
		now.Pools = append(now.Pools, s.concludePool(ctx, r, s.pools[name], was))
	}
	now.Lost = lost(old, now, r.lost)
	for protocol, table := range r.after {
		now.Unwanted[protocol] = table.unwanted
	}
	maps.Copy(now.Repairs, old.Repairs)
	for kind, n := range r.repairs {
		now.Repairs[kind] += n
	}
	now.Ended, now.Took = time.Now(), time.Since(r.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
}

// lost are the volumes that went away by other hands than the driver's, until
// they are back: gone names those of this round.
func lost(old, now Round, gone map[string]bool) []Entry {
	list := slices.Clone(old.Lost)
	there := map[string]bool{}
	for _, p := range now.Pools {
		for _, v := range p.Volumes {
			there[v.UUID] = true
		}
	}
	for _, p := range old.Pools {
		for _, v := range p.Volumes {
			if gone[v.UUID] && v.UUID != "" {
				list = append(list, v.Entry)
			}
		}
	}
	list = slices.DeleteFunc(list, func(e Entry) bool { return there[e.UUID] })
	return list[max(0, len(list)-maxLost):]
}

// concludePool is what a round saw of one pool; was is what the one before saw.
func (s *Service) concludePool(ctx context.Context, r *round, p *pool, was PoolRound) PoolRound {
	now := was
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Operation)
	defer cancel()
	v, away, err := s.poolSight(ctx, p)
	state, _ := s.cfg.Host.PoolState(ctx, p.cfg.Parent) // why there is none says away
	now.State = state
	p.mu.Lock()
	now.UsedBytes, now.AvailableBytes = p.usedBytes, p.availableBytes
	p.mu.Unlock()
	if now.Err = p.unusable(); now.Err == nil {
		now.Err = err
	}
	if away != nil && now.Err == nil {
		now.Err = fault.New(fault.Unavailable, "%s", away.Message)
	}
	if now.Err != nil {
		if away == nil {
			away = &Condition{Inaccessible, PoolUnavailable, now.Err.Error()}
		}
		now.Condition = away
		now.Volumes = withConditions(was.Volumes, *away)
		return now
	}
	now.Condition = v.pool
	if now.Unlisted = r.errs[p.cfg.Name]; now.Unlisted == nil {
		v.mounts, now.Unlisted = s.cfg.Host.Mounts(ctx)
	}
	if now.Unlisted != nil {
		if was.Err != nil {
			now.Volumes = withConditions(was.Volumes) // those of then are over
		}
		return now
	}
	v.keyMissing = func(string) bool { return false } // then the round's own error says so
	snapshots := p.index.snapshotsByDataset()
	records := r.records[p.cfg.Name]
	now.Volumes, now.Snapshots = make([]Seen, 0, len(records)), map[string]int{}
	for _, rec := range records {
		seen := s.asSeen(ctx, r, p, rec, v)
		seen.Snapshots = snapshots[rec.dataset.Name]
		now.Snapshots[seen.Protocol] += seen.Snapshots
		now.Volumes = append(now.Volumes, seen)
	}
	slices.SortFunc(now.Volumes, func(a, b Seen) int { return strings.Compare(a.ID, b.ID) })
	graves := p.index.tombstones()
	now.Deleted = len(graves)
	for _, g := range graves {
		now.Snapshots[g.params.Protocol] += snapshots[g.dataset.Name]
	}
	return now
}

// withConditions are volumes as they were seen, with other conditions.
func withConditions(list []Seen, conditions ...Condition) []Seen {
	list = slices.Clone(list)
	for i := range list {
		list[i].Conditions = conditions
	}
	return list
}

// asSeen is a volume as the round saw it; it counts whether the round put it right.
func (s *Service) asSeen(ctx context.Context, r *round, p *pool, rec *record, v sight) Seen {
	e := Seen{Entry: s.entry(p, rec, below{}, r.after)}
	if err := r.troubles[rec.uuid]; err != nil {
		e.Trouble = err.Error()
	}
	if e.Protocol == ISCSI && e.Published() {
		e.Sessions = s.sessions(ctx, rec.uuid)
	}
	// A call that worked on it since the listing changed both, and leaves nothing
	// to be compared.
	if s.touched.has(rec.id) || s.ops.Held(rec.id.String()) {
		e.Export = ExportNone
		if e.Published() {
			e.Export = ExportOpen
		}
		return e
	}
	conditions, err := s.judgeTwice(p, rec, v, r.before, r.after)
	if err != nil {
		e.Trouble = err.Error()
	}
	e.Conditions = append(e.Conditions, conditions...)
	if e.Exported() {
		before, there := r.before[e.Protocol].byUUID[rec.uuid]
		if s.exportWord(p, rec, r.before[e.Protocol], before, there) != ExportOpen {
			r.repaired(RepairedExport)
		}
	}
	return e
}

// sessions counts the initiators that are logged in to a volume.
func (s *Service) sessions(ctx context.Context, uuid string) int {
	e, ok := s.cfg.Exporters[ISCSI].(interface {
		Sessions(ctx context.Context, uuid string) ([]string, error)
	})
	if !ok {
		return 0
	}
	list, err := e.Sessions(ctx, uuid)
	if s.told.news("sessions", err) {
		s.cfg.Log.WithError(err).Warn("the sessions of a volume cannot be read")
	}
	return len(list)
}
