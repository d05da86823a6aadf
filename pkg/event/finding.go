package event

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/volume"
)

// The reasons of events that are none of a condition of pkg/volume.
const (
	// Recovered: what was told before is over.
	Recovered = "Recovered"
	// DatasetMissing: a published volume's dataset went away, and not by a call.
	DatasetMissing = "DatasetMissing"
	// ReconcileFailed: the driver could not bring a volume's export to what it
	// should be, though nothing seems to be missing.
	ReconcileFailed = "ReconcileFailed"
)

// finding is what a round says of one volume, pool or server.
type finding struct {
	// key tells what it is about.
	key string
	// volume is nil for a pool or a server.
	volume *volume.Entry
	// unknown says that the round could not see it. Else reason is what is wrong
	// with it, or "".
	unknown         bool
	reason, message string
}

// wide reports that it concerns many volumes.
func (f finding) wide() bool { return f.volume == nil }

// wholePool are the reasons of a pool's conditions, which each of its volumes has.
var wholePool = []string{volume.PoolDegraded, volume.PoolSuspended, volume.PoolUnavailable}

// findings sorts what a round has seen by whom it concerns.
func findings(r volume.Round) []finding {
	var all []finding
	servers := map[string]*finding{}
	for _, protocol := range []string{volume.NFS, volume.ISCSI} {
		servers[protocol] = &finding{key: "server " + protocol}
	}
	unserved := map[string]int{}
	for _, p := range r.Pools {
		pool := finding{key: "pool " + p.Name}
		away := false
		if c := p.Condition; c != nil {
			away = c.Severity == volume.Inaccessible
			pool.reason, pool.message = c.Reason, fmt.Sprintf("%s; %d volumes are in it", c.Message, len(p.Volumes))
		}
		all = append(all, pool)
		for _, v := range p.Volumes {
			f, server := ofVolume(v)
			if server != nil && servers[v.Protocol] != nil {
				unserved[v.Protocol]++
				servers[v.Protocol].reason, servers[v.Protocol].message = server.Reason, server.Message
			}
			f.unknown = f.unknown || away
			all = append(all, f)
		}
		for _, s := range servers {
			s.unknown = s.unknown || away
		}
	}
	for protocol, s := range servers {
		if s.reason != "" {
			s.unknown = false
			s.message += fmt.Sprintf("; %d published volumes of protocol %s cannot be used", unserved[protocol], protocol)
		}
		all = append(all, *s)
	}
	for _, e := range r.Lost {
		if key := "volume " + e.ID; !slices.ContainsFunc(all, func(f finding) bool { return f.key == key }) {
			all = append(all, finding{key: key, volume: &e, reason: DatasetMissing, message: fmt.Sprintf(
				"dataset %s is gone, or is none of this driver's any more, while the volume was published: bring it back, or restore the data", e.Dataset)})
		}
	}
	return all
}

// ofVolume is what concerns one volume alone. Of one whose server does not work
// nothing more is known; server is that condition then.
func ofVolume(v volume.Seen) (f finding, server *volume.Condition) {
	f = finding{key: "volume " + v.ID, volume: &v.Entry}
	var words []string
	var worst volume.Severity
	for _, c := range v.Conditions {
		if slices.Contains(wholePool, c.Reason) {
			continue
		}
		if c.Reason == volume.ServerUnavailable {
			f.unknown, server = true, &c
			continue
		}
		words = append(words, c.Message)
		if c.Severity > worst {
			worst, f.reason = c.Severity, c.Reason
		}
	}
	if v.Trouble != "" && server == nil {
		words = append(words, v.Trouble)
		if f.reason == "" {
			f.reason = ReconcileFailed
		}
	}
	f.message = fmt.Sprintf("volume %s: %s", v.ID, strings.Join(words, "; "))
	return f, server
}
