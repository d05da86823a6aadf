package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Severity is what a condition means for those who use the volume.
type Severity int

// The severities. The zero value is none of them.
const (
	// Degraded: usable, and not as it should be.
	Degraded Severity = iota + 1
	// Inaccessible: no node can use it.
	Inaccessible
)

// String is the severity in the words of the specification.
func (s Severity) String() string {
	switch s {
	case Degraded:
		return "DEGRADED"
	case Inaccessible:
		return "INACCESSIBLE"
	}
	return "unknown"
}

// MarshalText writes the severity as a word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{Degraded, Inaccessible} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("%q is no severity", text)
}

// Condition is one thing that is wrong with a volume now.
type Condition struct {
	Severity Severity `json:"severity"`
	// Reason is one of the words below; a volume has each at most once.
	Reason string `json:"reason"`
	// Message is for people: what it is, and what to do.
	Message string `json:"message"`
}

// The reasons of conditions.
const (
	PoolDegraded         = "PoolDegraded"
	PoolSuspended        = "PoolSuspended"
	PoolUnavailable      = "PoolUnavailable"
	PropertiesUnreadable = "PropertiesUnreadable"
	EncryptionKeyMissing = "EncryptionKeyMissing"
	NotMounted           = "NotMounted"
	MountedElsewhere     = "MountedElsewhere"
	ServerUnavailable    = "ServerUnavailable"
	CHAPPairMissing      = "CHAPPairMissing"
	NotExported          = "NotExported"
	ExportIncomplete     = "ExportIncomplete"
)

// Health is a volume and what is wrong with it.
type Health struct {
	VolumeID   string
	Conditions []Condition
}

// Watch is what shows the state of a storage host without touching it.
type Watch interface {
	// PoolState returns the state of a dataset's pool as zpool(8) prints it,
	// without a command and without waiting for the pool. zfs.ErrNotExist when it
	// is not imported.
	PoolState(ctx context.Context, dataset string) (string, error)
	// Mounting tells whether an import, or a `zfs mount`, of this host still mounts
	// filesystems.
	Mounting(ctx context.Context) (bool, error)
	// Mounts returns where filesystems are mounted, by dataset.
	Mounts(ctx context.Context) (map[string]string, error)
	// KeysMissing returns the datasets directly below parent whose encryption key
	// is not loaded, with one command.
	KeysMissing(ctx context.Context, parent string) (map[string]bool, error)
}

// Health returns what is wrong with a volume now; nothing when it is well. It
// starts one command, whatever the number of volumes.
//
// Of a pool that does not answer, the volumes that were seen last are known.
// fault.Unavailable for another one of it; fault.NotFound when the volume does
// not exist.
func (s *Service) Health(ctx context.Context, volumeID string) ([]Condition, error) {
	id, err := s.parse(volumeID)
	if err != nil {
		return nil, err
	}
	p := s.pools[id.Pool]
	v, away, err := s.poolSight(ctx, p)
	if err != nil {
		return nil, err
	}
	if away != nil {
		if !slices.Contains(p.known(), id) {
			return nil, fault.New(fault.Unavailable, "volume %s: %s", id, away.Message)
		}
		return []Condition{*away}, nil
	}
	var list []Condition
	err = s.read(ctx, "ControllerGetVolumeHealth", id.Pool, func(ctx context.Context) error {
		d, err := s.cfg.ZFS.Get(ctx, p.dataset(id.Component))
		if err != nil {
			return describe(err, "read volume %s", id)
		}
		r, ours := readRecord(id, d)
		if !ours {
			return notOurs(id, d)
		}
		v.keyMissing = func(string) bool { return d.KeyMissing() }
		if v.mounts, err = s.cfg.Host.Mounts(ctx); err != nil {
			return err
		}
		v.export = func(protocol string) (export.Status, bool, error) {
			return s.cfg.Exporters[protocol].Look(ctx, r.uuid)
		}
		v.ready = func(protocol string) error { return s.cfg.Exporters[protocol].Ready(ctx) }
		list, err = s.judge(p, r, v)
		return err
	})
	if err != nil {
		return nil, err // the operation may still run
	}
	return list, nil
}

// ListHealth returns the volumes with which something is wrong, paged as List
// pages. It starts two commands a pool.
func (s *Service) ListHealth(ctx context.Context, limit int, token string) ([]Health, string, error) {
	if err := s.checkPage(limit, token); err != nil {
		return nil, "", err
	}
	before := s.lookAll(ctx)
	var all []Health
	for _, name := range s.order {
		list, err := s.poolHealth(ctx, s.pools[name], before)
		if err != nil {
			return nil, "", err
		}
		all = append(all, list...)
	}
	list, next := page(all, func(h Health) string { return h.VolumeID }, limit, token)
	return list, next, nil
}

// poolHealth judges the volumes of one pool. The kernel's tables are read before
// and after the listing: a volume that is published or unpublished meanwhile is
// as it should be in one of them.
func (s *Service) poolHealth(ctx context.Context, p *pool, before map[string]exported) ([]Health, error) {
	v, away, err := s.poolSight(ctx, p)
	if err != nil {
		return nil, err
	}
	var all []Health
	if away != nil {
		known := p.known()
		if known == nil {
			return nil, fault.New(fault.Unavailable, "%s", away.Message)
		}
		for _, id := range known {
			all = append(all, Health{VolumeID: id.String(), Conditions: []Condition{*away}})
		}
		return all, nil
	}
	err = s.read(ctx, "ControllerListVolumeHealth", p.cfg.Name, func(ctx context.Context) error {
		records, err := s.listRecords(ctx, p)
		if err != nil {
			return err
		}
		keys, err := s.cfg.Host.KeysMissing(ctx, p.cfg.Parent)
		if err != nil {
			return ofParent(err, "read the key states of pool %q", p.cfg.Name)
		}
		v.keyMissing = func(dataset string) bool { return keys[dataset] }
		if v.mounts, err = s.cfg.Host.Mounts(ctx); err != nil {
			return err
		}
		after := s.lookAll(ctx)
		for _, r := range records {
			list, err := s.judgeTwice(p, r, v, before, after)
			if err != nil {
				return err
			}
			if len(list) > 0 {
				all = append(all, Health{VolumeID: r.id.String(), Conditions: list})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err // the operation may still run, and append
	}
	return all, nil
}

// judgeTwice is judge by what was read of the kernel's tables before and after
// the volume's properties.
func (s *Service) judgeTwice(p *pool, r *record, v sight, before, after map[string]exported) ([]Condition, error) {
	list, err := s.judge(p, r, v.with(before, r.uuid))
	if err == nil && len(list) > 0 {
		list, err = s.judge(p, r, v.with(after, r.uuid))
	}
	return list, err
}

// sight is what volumes are judged by.
type sight struct {
	// pool is a condition of all volumes, or nil.
	pool       *Condition
	keyMissing func(dataset string) bool
	mounts     map[string]string
	// export is what the kernel shows of the volume in question; ready is why a
	// protocol's server cannot serve.
	export func(protocol string) (export.Status, bool, error)
	ready  func(protocol string) error
}

// with is the sight of one volume by what was read of the kernel's tables.
func (v sight) with(tables map[string]exported, uuid string) sight {
	v.ready = func(protocol string) error { return tables[protocol].err }
	v.export = func(protocol string) (export.Status, bool, error) {
		st, ok := tables[protocol].byUUID[uuid]
		return st, ok, nil
	}
	return v
}

// poolSight looks at a pool's state; away is the condition of all its volumes
// when it cannot be asked about them.
func (s *Service) poolSight(ctx context.Context, p *pool) (v sight, away *Condition, err error) {
	// What belongs to another driver is none of our volumes. For all else that
	// keeps a pool from being used, looking is harmless.
	if err := p.unusable(); fault.Kind(err) == fault.Precondition {
		return v, nil, err
	}
	name, _, _ := strings.Cut(p.cfg.Parent, "/")
	state, err := s.cfg.Host.PoolState(ctx, p.cfg.Parent)
	switch {
	case errors.Is(err, zfs.ErrNotExist):
		return v, &Condition{Inaccessible, PoolUnavailable, fmt.Sprintf("pool %s is not imported: import it", name)}, nil
	case err != nil:
		return v, nil, fmt.Errorf("read the state of pool %s: %w", name, err)
	case state == zfs.Suspended:
		return v, &Condition{Inaccessible, PoolSuspended, fmt.Sprintf("pool %s is suspended: see `zpool status %s`, and bring its disks back and run `zpool clear %s`", name, name, name)}, nil
	case state == "DEGRADED":
		v.pool = &Condition{Degraded, PoolDegraded, fmt.Sprintf("pool %s is degraded: see `zpool status %s`", name, name)}
	case state != "ONLINE":
		return v, &Condition{Inaccessible, PoolUnavailable, fmt.Sprintf("pool %s is %s: see `zpool status %s`", name, state, name)}, nil
	}
	return v, nil, nil
}

// judge says what is wrong with one volume. What follows from another thing is
// left out.
func (s *Service) judge(p *pool, r *record, v sight) ([]Condition, error) {
	var list []Condition
	if v.pool != nil {
		list = append(list, *v.pool)
	}
	lost := func(reason, format string, args ...any) []Condition {
		return append(list, Condition{Inaccessible, reason, fmt.Sprintf(format, args...)})
	}
	if why := r.unreadable(); why != "" {
		return lost(PropertiesUnreadable, "%s", why), nil
	}
	if v.keyMissing(r.dataset.Name) {
		return lost(EncryptionKeyMissing, "the encryption key of %s is not loaded: run `zfs load-key`", r.dataset.Name), nil
	}
	published := len(r.publications) > 0
	if r.params.Protocol == NFS {
		want := r.mountpoint(p)
		switch dir, ok := v.mounts[r.dataset.Name]; {
		case !ok && published:
			list = lost(NotMounted, "dataset %s is not mounted on the storage host", r.dataset.Name)
		case ok && want != "" && dir != want:
			list = lost(MountedElsewhere, "dataset %s is mounted at %s, and its mountpoint is %s: unmount it", r.dataset.Name, dir, want)
		}
	}
	if !published {
		return list, nil
	}
	if s.cfg.Exporters[r.params.Protocol] == nil {
		return lost(ServerUnavailable, "it is of protocol %s, which this driver does not serve now: start it with --protocols %s", r.params.Protocol, r.params.Protocol), nil
	}
	if err := v.ready(r.params.Protocol); err != nil {
		return lost(ServerUnavailable, "%v", err), nil
	}
	st, _, err := v.export(r.params.Protocol)
	if err != nil {
		return nil, err
	}
	return append(list, s.judgeExport(p, r, st)...), nil
}

// unreadable says why the volume's properties make no sense; empty when they do.
func (r *record) unreadable() string {
	if r.err == nil {
		return ""
	}
	return r.err.Error()
}

// judgeExport compares what the kernel shows of a volume with its publications.
func (s *Service) judgeExport(p *pool, r *record, st export.Status) []Condition {
	var unpaired, closed []string
	for _, name := range r.nodes() {
		node, err := ident.ParseNodeID(r.publications[name].NodeID)
		if err != nil {
			closed = append(closed, name)
			continue
		}
		g := export.Grant{Node: name}
		var clients []string
		if r.params.Protocol == ISCSI {
			if ok, err := s.credentials(p, r, &g); err != nil || !ok {
				unpaired = append(unpaired, name)
				continue
			}
			clients = []string{s.cfg.Naming.Initiator(name)}
		} else {
			for _, a := range node.Addresses {
				clients = append(clients, a.String())
			}
		}
		if !slices.ContainsFunc(clients, func(c string) bool { return slices.Contains(st.Clients, c) }) {
			closed = append(closed, name)
		}
	}
	// One of several nodes that has no access leaves the volume usable.
	severity := func(nodes []string) Severity {
		if len(nodes) < len(r.publications) {
			return Degraded
		}
		return Inaccessible
	}
	var list []Condition
	if len(unpaired) > 0 {
		list = append(list, Condition{severity(unpaired), CHAPPairMissing, fmt.Sprintf(
			"the CHAP pair for node %s is not on this host: publish the volume there again", strings.Join(unpaired, ", "))})
	}
	if len(closed) > 0 {
		list = append(list, Condition{severity(closed), NotExported, fmt.Sprintf(
			"the kernel does not export it to node %s, to which it is published", strings.Join(closed, ", "))})
	}
	if len(list) == 0 && !st.Complete {
		list = append(list, Condition{Degraded, ExportIncomplete, "the kernel's export of it is not whole"})
	}
	return list
}

// exported is what the kernel shows of one protocol.
type exported struct {
	byUUID map[string]export.Status
	// err says why the protocol is not served, down only why its server cannot
	// serve.
	err, down error
	// unwanted counts those that belong to no volume and are still there.
	unwanted int
}

// lookAll reads the kernel's tables of every protocol.
func (s *Service) lookAll(ctx context.Context) map[string]exported {
	all := map[string]exported{}
	for protocol, e := range s.cfg.Exporters {
		x := exported{byUUID: map[string]export.Status{}, down: e.Ready(ctx)}
		if x.err = x.down; x.err == nil {
			var list []export.Status
			list, x.err = e.List(ctx)
			for _, st := range list {
				x.byUUID[st.UUID] = st
			}
		}
		all[protocol] = x
	}
	return all
}
