package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Sources are where a scrape reads. None of them may block. Those that are nil
// are not there: a node has no pools.
type Sources struct {
	// Children are the child processes that run.
	Children func() []run.Child
	// Operations are what runs, by the service that runs it: storage, node.
	Operations map[string]func() []op.Running
	// Round is what the storage host's last round saw, Tally the node's last sweep.
	Round func() volume.Round
	Tally func() node.Tally
	// Ready reports why the driver is not ready, Stuck which loop hangs.
	Ready, Stuck func() error
}

// state makes metrics of the sources.
type state struct{ Sources }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	ready   = desc("tarn_ready", "1 when the driver is ready, as Probe and /readyz say.")
	healthy = desc("tarn_healthy", "1 when no loop hangs, as /healthz says.")

	childrenRunning = desc("tarn_children_running", "Child processes that run now.", "tool", "verb")
	childOldest     = desc("tarn_child_oldest_seconds", "Age of the oldest child process that runs now; 0 without any.")

	operationsRunning = desc("tarn_operations_running", "Operations that run now, those without a lock too.", "service")
	operationsOverdue = desc("tarn_operations_overdue", "Operations that have outlived their time and hold what they held.", "service")
	locksHeld         = desc("tarn_locks_held", "Operations that hold locks of volumes, snapshots or paths.", "service")
	lockOldest        = desc("tarn_lock_oldest_seconds", "Age of the oldest operation that holds locks; 0 without any.", "service")

	poolUsable    = desc("tarn_pool_usable", "1 when the last round could use the pool.", "pool")
	poolListed    = desc("tarn_pool_listed", "1 when the last round could list the pool; else its volumes are those of an earlier round.", "pool")
	poolUsed      = desc("tarn_pool_used_bytes", "Bytes that the parent dataset takes, with reservations.", "pool")
	poolAvailable = desc("tarn_pool_available_bytes", "Bytes that can still be written below the parent dataset.", "pool")
	deleted       = desc("tarn_deleted_volumes", "Deleted volumes that snapshots or clones still need.", "pool")
	volumes       = desc("tarn_volumes", "Volumes.", "pool", "protocol")
	volumeBytes   = desc("tarn_volume_bytes", "Sum of the sizes that the volumes have for their users.", "pool", "protocol")
	snapshots     = desc("tarn_snapshots", "Snapshots that can be asked for, those of deleted volumes too.", "pool", "protocol")
	conditions    = desc("tarn_volume_conditions", "Volumes with which something is wrong, by reason.", "pool", "severity", "reason")
	wanted        = desc("tarn_exports_wanted", "Volumes that must be exported, as ZFS says.", "pool", "protocol")
	seen          = desc("tarn_exports_seen", "Volumes that the kernel exports to every node they are published to.", "pool", "protocol")
	unwanted      = desc("tarn_exports_unwanted", "Exports that no volume wants and that could not be removed.", "protocol")
	sessions      = desc("tarn_sessions", "iSCSI initiators that are logged in to volumes of the pool.", "pool")

	rounds       = desc("tarn_reconcile_rounds_total", "Rounds of the reconcile.")
	roundsFailed = desc("tarn_reconcile_failures_total", "Rounds that found a pool, or a protocol's server, that cannot be used.")
	repairs      = desc("tarn_reconcile_repairs_total", "Exports that rounds put right: made or mended (export), or removed (unwanted).", "kind")
	roundTime    = desc("tarn_reconcile_duration_seconds", "How long the last round took.")
	roundEnd     = desc("tarn_reconcile_end_timestamp_seconds", "When the last round ended; 0 before the first.")

	sweeps        = desc("tarn_sweep_rounds_total", "Sweeps of the node.")
	sweepsFailed  = desc("tarn_sweep_failures_total", "Sweeps that could not look.")
	sweepsRemoved = desc("tarn_sweep_removed_total", "Targets of volumes that are not staged, of which sweeps removed sessions or records.")
	sweepEnd      = desc("tarn_sweep_end_timestamp_seconds", "When the last sweep ended; 0 before the first.")
	staged        = desc("tarn_node_volumes_staged", "Volumes that are staged on this node.", "protocol")
	nodeSessions  = desc("tarn_node_sessions", "iSCSI sessions of this node with targets of this instance, by state: up, lost.", "state")
	orphans       = desc("tarn_node_orphans", "Targets that the last sweep found and no stage record claims.")
)

// Describe implements prometheus.Collector.
func (s state) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs() {
		to <- d
	}
}

// descs are all that Collect may show.
func descs() []*prometheus.Desc {
	return []*prometheus.Desc{
		ready, healthy, childrenRunning, childOldest, operationsRunning, operationsOverdue, locksHeld, lockOldest,
		poolUsable, poolListed, poolUsed, poolAvailable, deleted, volumes, volumeBytes, snapshots, conditions, wanted, seen, unwanted, sessions,
		rounds, roundsFailed, repairs, roundTime, roundEnd, sweeps, sweepsFailed, sweepsRemoved, sweepEnd, staged, nodeSessions, orphans,
	}
}

// Collect implements prometheus.Collector.
func (s state) Collect(to chan<- prometheus.Metric) {
	out := sink(to)
	if s.Ready != nil {
		out.gauge(ready, truth(s.Ready() == nil))
	}
	if s.Stuck != nil {
		out.gauge(healthy, truth(s.Stuck() == nil))
	}
	if s.Children != nil {
		out.running(s.Children())
	}
	for service, operations := range s.Operations {
		out.operations(service, operations())
	}
	if s.Round != nil {
		out.round(s.Round())
	}
	if s.Tally != nil {
		out.tally(s.Tally())
	}
}

// sink is where metrics go.
type sink chan<- prometheus.Metric

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (s sink) counter(d *prometheus.Desc, value uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// since is an age in seconds; none of the zero time.
func since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}

func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func (s sink) running(list []run.Child) {
	counts := map[[2]string]int{}
	var oldest time.Time
	for i, c := range list {
		if i == 0 {
			oldest = c.Since
		}
		tool, verb := c.Kind()
		counts[[2]string{tool, verb}]++
	}
	for labels, n := range counts {
		s.gauge(childrenRunning, float64(n), labels[:]...)
	}
	s.gauge(childOldest, since(oldest))
}

func (s sink) operations(service string, list []op.Running) {
	var overdue, held int
	var oldest time.Time
	for _, r := range list {
		if r.Overdue {
			overdue++
		}
		if len(r.Keys) == 0 {
			continue
		}
		if held++; held == 1 {
			oldest = r.Since
		}
	}
	s.gauge(operationsRunning, float64(len(list)), service)
	s.gauge(operationsOverdue, float64(overdue), service)
	s.gauge(locksHeld, float64(held), service)
	s.gauge(lockOldest, since(oldest), service)
}

func (s sink) round(r volume.Round) {
	s.counter(rounds, r.Rounds)
	s.counter(roundsFailed, r.Failed)
	for _, kind := range []volume.Repair{volume.RepairedExport, volume.RemovedExport} {
		s.counter(repairs, r.Repairs[kind], string(kind))
	}
	s.gauge(roundTime, r.Took.Seconds())
	s.gauge(roundEnd, timestamp(r.Ended))
	for protocol, n := range r.Unwanted {
		s.gauge(unwanted, float64(n), protocol)
	}
	for _, p := range r.Pools {
		s.pool(p)
	}
}

func (s sink) pool(p volume.PoolRound) {
	s.gauge(poolUsable, truth(p.Err == nil), p.Name)
	s.gauge(poolListed, truth(p.Err == nil && p.Unlisted == nil), p.Name)
	s.gauge(poolUsed, float64(p.UsedBytes), p.Name)
	s.gauge(poolAvailable, float64(p.AvailableBytes), p.Name)
	s.gauge(deleted, float64(p.Deleted), p.Name)

	type count struct{ all, published, exported, bytes int64 }
	byProtocol := map[string]*count{volume.NFS: {}, volume.ISCSI: {}}
	troubles := map[[2]string]int{}
	var loggedIn int
	for _, v := range p.Volumes {
		c := byProtocol[protocolOf(v)]
		if c == nil {
			c = &count{}
			byProtocol[protocolOf(v)] = c
		}
		c.all++
		c.bytes += v.SizeBytes
		if v.Published() {
			c.published++
		}
		if v.Exported() {
			c.exported++
		}
		loggedIn += v.Sessions
		for _, condition := range v.Conditions {
			troubles[[2]string{condition.Severity.String(), condition.Reason}]++
		}
	}
	for protocol, c := range byProtocol {
		s.gauge(volumes, float64(c.all), p.Name, protocol)
		s.gauge(volumeBytes, float64(c.bytes), p.Name, protocol)
		s.gauge(wanted, float64(c.published), p.Name, protocol)
		s.gauge(seen, float64(c.exported), p.Name, protocol)
	}
	for _, protocol := range slices.Sorted(maps.Keys(byProtocol)) {
		s.gauge(snapshots, float64(p.Snapshots[protocol]), p.Name, protocol)
	}
	for labels, n := range troubles {
		s.gauge(conditions, float64(n), p.Name, labels[0], labels[1])
	}
	s.gauge(sessions, float64(loggedIn), p.Name)
}

// protocolOf is a volume's protocol. The property of a broken one may hold
// anything, and must not make a series.
func protocolOf(v volume.Seen) string {
	if v.Protocol == volume.NFS || v.Protocol == volume.ISCSI {
		return v.Protocol
	}
	return run.Other
}

func (s sink) tally(t node.Tally) {
	s.counter(sweeps, t.Sweeps)
	s.counter(sweepsFailed, t.Failed)
	s.counter(sweepsRemoved, t.Removed)
	s.gauge(sweepEnd, timestamp(t.Ended))
	for protocol, n := range t.Staged {
		s.gauge(staged, float64(n), protocol)
	}
	s.gauge(nodeSessions, float64(t.Sessions-t.Lost), "up")
	s.gauge(nodeSessions, float64(t.Lost), "lost")
	s.gauge(orphans, float64(t.Orphans))
}
