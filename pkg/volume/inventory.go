package volume

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Entry is a volume as a person sees it who sits at the storage host.
type Entry struct {
	ID      string `json:"id"`
	Dataset string `json:"dataset"`
	UUID    string `json:"uuid"`
	// Owner is for whom it was made, where the orchestrator tells.
	Owner owner `json:"owner"`
	// Ephemeral says that it was made for one pod, and goes with it.
	Ephemeral bool `json:"ephemeral"`

	Protocol string `json:"protocol"`
	// SizeBytes is the volume's size. UsedBytes is all that it takes from the
	// pool: its data, its snapshots and what is reserved for it; SnapshotBytes is
	// the part of it that would be free without its snapshots.
	SizeBytes     int64 `json:"sizeBytes"`
	UsedBytes     int64 `json:"usedBytes"`
	SnapshotBytes int64 `json:"snapshotBytes"`
	// Snapshots are those of this driver, ForeignSnapshots those of other tools.
	Snapshots        int `json:"snapshots"`
	ForeignSnapshots int `json:"foreignSnapshots"`
	// PublishedTo are the ids of the nodes it is published to, by the properties.
	PublishedTo []string `json:"publishedTo"`
	// Export says whether the kernel does what the publications say, Clients to
	// whom it is open in truth: addresses (nfs) or initiator names (iscsi).
	Export     string      `json:"export"`
	Clients    []string    `json:"clients"`
	Conditions []Condition `json:"conditions"`
}

// The words of Entry.Export.
const (
	// ExportNone: published to nobody, and open to nobody.
	ExportNone = "none"
	// ExportOpen: open to every node that it is published to.
	ExportOpen = "open"
	// ExportPartly: open, but not to all of them, or not whole.
	ExportPartly = "partly"
	// ExportMissing: published, and open to none of them.
	ExportMissing = "missing"
	// ExportStray: published to nobody, and there is an export.
	ExportStray = "stray"
	// ExportUnknown: the server does not run, or the properties make no sense.
	ExportUnknown = "unknown"
)

// Inventory lists the volumes of every pool by id, as ZFS and the kernel's own
// tables show them. It needs no pool to be open: it works beside the process that
// holds the parents, takes no lock and changes nothing. It starts three commands
// a pool. A pool that cannot be read does not hide the others: what there is
// comes together with the error.
func (s *Service) Inventory(ctx context.Context) ([]Entry, error) {
	before := s.lookAll(ctx)
	all := []Entry{}
	var errs []error
	for _, name := range s.order {
		list, err := s.poolInventory(ctx, s.pools[name], before)
		all, errs = append(all, list...), append(errs, err)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return all, errors.Join(errs...)
}

func (s *Service) poolInventory(ctx context.Context, p *pool, before map[string]exported) ([]Entry, error) {
	v, err := s.sightOf(ctx, p)
	if err != nil {
		return nil, err
	}
	var all []Entry
	err = s.read(ctx, "list volumes", p.cfg.Name, func(ctx context.Context) error {
		if err := s.survey(ctx, p); err != nil {
			return err
		}
		records, err := s.listRecords(ctx, p)
		if err != nil {
			return err
		}
		below, err := s.cfg.ZFS.Inventory(ctx, p.cfg.Parent)
		if err != nil {
			return ofParent(err, "list what is in pool %q", p.cfg.Name)
		}
		found := sortBelow(below)
		v.keyMissing = func(dataset string) bool { return found.datasets[dataset].KeyMissing() }
		if v.mounts, err = s.cfg.Host.Mounts(ctx); err != nil {
			return err
		}
		after := s.lookAll(ctx)
		for _, r := range records {
			conditions, err := s.judgeTwice(p, r, v, before, after)
			if err != nil {
				return err
			}
			e := s.entry(p, r, found, after)
			e.Conditions = append(e.Conditions, conditions...)
			all = append(all, e)
		}
		return nil
	})
	if err != nil {
		return nil, err // the operation may still run, and append
	}
	return all, nil
}

// sightOf is poolSight of a pool whose volumes are to be listed.
func (s *Service) sightOf(ctx context.Context, p *pool) (sight, error) {
	v, away, err := s.poolSight(ctx, p)
	if away != nil {
		return v, fault.New(fault.Unavailable, "%s", away.Message)
	}
	return v, err
}

// survey reads of the parent what a listing needs, without taking the pool.
func (s *Service) survey(ctx context.Context, p *pool) error {
	d, _, err := s.readParent(ctx, p)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base, _ = d.Value("mountpoint")
	return nil
}

// below is everything below a parent.
type below struct {
	datasets map[string]zfs.Dataset
	// snapshots are those of each dataset.
	snapshots map[string][]zfs.Dataset
}

func sortBelow(list []zfs.Dataset) below {
	b := below{datasets: map[string]zfs.Dataset{}, snapshots: map[string][]zfs.Dataset{}}
	for _, d := range list {
		if dataset, _, isSnapshot := cutSnapshot(d.Name); isSnapshot {
			b.snapshots[dataset] = append(b.snapshots[dataset], d)
			continue
		}
		b.datasets[d.Name] = d
	}
	return b
}

// foreignSnapshot reports that another tool made a snapshot.
func foreignSnapshot(d zfs.Dataset) bool {
	_, name, _ := cutSnapshot(d.Name)
	_, ours := d.Own(propName)
	return !ours && !hiddenName(name)
}

// entry is all of a volume but what is wrong with it.
func (s *Service) entry(p *pool, r *record, found below, tables map[string]exported) Entry {
	e := Entry{
		ID: r.id.String(), Dataset: r.dataset.Name, UUID: r.uuid, Owner: readOwner(r.dataset), Ephemeral: r.params.Ephemeral,
		SizeBytes: r.sizeBytes, PublishedTo: []string{}, Clients: []string{}, Conditions: []Condition{},
	}
	e.Protocol, _ = r.dataset.Own(propProtocol)
	d := found.datasets[r.dataset.Name]
	e.UsedBytes, e.SnapshotBytes = d.Bytes("used"), d.Bytes("usedbysnapshots")
	for _, snapshot := range found.snapshots[r.dataset.Name] {
		_, name, _ := cutSnapshot(snapshot.Name)
		switch {
		case foreignSnapshot(snapshot):
			e.ForeignSnapshots++
		case !hiddenName(name):
			e.Snapshots++
		}
	}
	e.PublishedTo = append(e.PublishedTo, r.volume().Nodes...)
	st, there := tables[e.Protocol].byUUID[r.uuid]
	e.Clients = append(e.Clients, st.Clients...)
	e.Export = s.exportWord(p, r, tables[e.Protocol], st, there)
	return e
}

// exportWord says in a word whether the kernel does what the publications say.
func (s *Service) exportWord(p *pool, r *record, table exported, st export.Status, there bool) string {
	published := len(r.publications) > 0
	switch {
	case r.err != nil || published && (table.err != nil || s.cfg.Exporters[r.params.Protocol] == nil):
		return ExportUnknown
	case !published && there:
		return ExportStray
	case !published:
		return ExportNone
	case !there:
		return ExportMissing
	}
	word := ExportOpen
	for _, c := range s.judgeExport(p, r, st) {
		if c.Reason == NotExported && c.Severity == Inaccessible || c.Reason == CHAPPairMissing && c.Severity == Inaccessible {
			return ExportMissing
		}
		word = ExportPartly
	}
	return word
}
