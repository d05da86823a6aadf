package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Orphan is something on the storage host that no volume claims.
type Orphan struct {
	Kind string `json:"kind"`
	// Name is a dataset, a target's name, or the uuid of a volume.
	Name string `json:"name"`
	// Bytes are what the pool would have back, as far as that can be told.
	Bytes int64 `json:"bytes"`
	// Removal says whether it can be removed.
	Removal string `json:"removal"`
	// Why says what it is, and what to do where Removal does not help.
	Why string `json:"why"`

	pool *pool
	// uuid and protocol are of an export, volume of a copy.
	uuid, protocol string
	volume         ident.VolumeID
}

// The kinds of orphans.
const (
	OrphanDataset   = "dataset"
	OrphanCopy      = "copy"
	OrphanTombstone = "tombstone"
	OrphanSnapshots = "snapshots"
	OrphanExport    = "export"
	OrphanTarget    = "target"
	OrphanSession   = "session"
	OrphanStage     = "stage"
	OrphanPod       = "ephemeral"
)

// The words of Orphan.Removal.
const (
	// RemovalYes: it can be removed while the daemon runs.
	RemovalYes = "yes"
	// RemovalStopped: it can be removed while no daemon serves the parents.
	RemovalStopped = "stopped"
	// RemovalKept: it goes with what needs it.
	RemovalKept = "kept"
	// RemovalForeign: somebody else made it, and it is never removed.
	RemovalForeign = "foreign"
)

// Others is an exporter that can tell what else the host exports.
type Others interface {
	// Others lists exports that are not of this instance.
	Others(ctx context.Context) ([]export.Other, error)
}

// Orphans lists what no volume of the configured pools claims, like Inventory
// beside the process that serves them. Exports can be told to be without a
// volume only when every pool can be read; the error says which cannot.
func (s *Service) Orphans(ctx context.Context) ([]Orphan, error) {
	// What volumes have comes first: every volume that something is of is then in
	// the listings that follow, since a uuid is never used again.
	exports, err := s.listExports(ctx)
	errs := []error{err}
	all := []Orphan{}
	complete := err == nil
	left, err := s.readLeavings(ctx)
	errs = append(errs, err)
	uuids, ids := map[string]bool{}, map[string]bool{}
	for _, name := range s.order {
		list, err := s.poolOrphans(ctx, s.pools[name], uuids, ids)
		all, errs = append(all, list...), append(errs, err)
		complete = complete && err == nil
	}
	if complete {
		list, err := s.exportOrphans(ctx, exports, uuids)
		all, errs = append(all, list...), append(errs, err)
		all = append(all, left.orphans(s, uuids, ids)...)
		list, err = s.podOrphans(ctx, left)
		all, errs = append(all, list...), append(errs, err)
	}
	others, err := s.otherExports(ctx)
	all, errs = append(all, others...), append(errs, err)
	slices.SortStableFunc(all, func(a, b Orphan) int {
		return strings.Compare(a.Kind+"\x00"+a.Name, b.Kind+"\x00"+b.Name)
	})
	return all, errors.Join(errs...)
}

// listExports reads the kernel's tables, whether its servers run or not.
func (s *Service) listExports(ctx context.Context) (map[string][]export.Status, error) {
	all := map[string][]export.Status{}
	var errs []error
	for _, protocol := range s.Protocols() {
		list, err := s.cfg.Exporters[protocol].List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the kernel's exports (%s): %w", protocol, err))
		}
		all[protocol] = list
	}
	return all, errors.Join(errs...)
}

// exportOrphans are the exports of this instance whose uuid is no dataset's. One
// that a pool has which is not configured here is shown as somebody else's.
func (s *Service) exportOrphans(ctx context.Context, exports map[string][]export.Status, uuids map[string]bool) ([]Orphan, error) {
	var all []Orphan
	for protocol, list := range exports {
		for _, st := range list {
			if !uuids[st.UUID] {
				all = append(all, s.exportOrphan(protocol, st))
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	holders, err := s.cfg.ZFS.Holders(ctx, propUUID)
	if err != nil {
		return nil, fmt.Errorf("look in all pools for the volumes of %d exports: %w", len(all), err)
	}
	for i, o := range all {
		if dataset, ok := holders[o.uuid]; ok {
			all[i].Removal = RemovalForeign
			all[i].Why = "its volume is dataset " + dataset + ", which is under no parent of this configuration: give all of the daemon's pools"
		}
	}
	return all, nil
}

func (s *Service) exportOrphan(protocol string, st export.Status) Orphan {
	o := Orphan{Kind: OrphanExport, Name: st.UUID, Removal: RemovalYes, uuid: st.UUID, protocol: protocol,
		Why: "it is of this instance, and no dataset of any pool has this uuid"}
	if protocol == ISCSI {
		o.Kind, o.Name = OrphanTarget, s.cfg.Naming.Target(st.UUID)
	}
	if len(st.Clients) > 0 {
		o.Why += "; open to " + strings.Join(st.Clients, ", ")
	}
	return o
}

// otherExports are those that this instance did not make.
func (s *Service) otherExports(ctx context.Context) ([]Orphan, error) {
	var all []Orphan
	var errs []error
	for _, protocol := range s.Protocols() {
		e, ok := s.cfg.Exporters[protocol].(Others)
		if !ok {
			continue
		}
		list, err := e.Others(ctx)
		errs = append(errs, err)
		for _, other := range list {
			parent := s.parentOf(other.Source)
			o := Orphan{Kind: OrphanExport, Name: other.Name, Removal: RemovalForeign, Why: "this instance did not make it"}
			if protocol == ISCSI {
				o.Kind = OrphanTarget
			} else if parent == "" {
				continue // a directory that has nothing to do with any volume
			}
			if parent != "" {
				o.Why += ", and it exports " + other.Source + ", which is below parent " + parent
			}
			all = append(all, o)
		}
	}
	return all, errors.Join(errs...)
}

// parentOf is the parent dataset below which a directory or a device is; "" for
// none.
func (s *Service) parentOf(source string) string {
	for _, name := range s.order {
		p := s.pools[name]
		p.mu.Lock()
		base := p.base
		p.mu.Unlock()
		for _, above := range []string{base, zfs.DevicePath(p.cfg.Parent)} {
			if strings.HasPrefix(above, "/") && strings.HasPrefix(source+"/", above+"/") {
				return p.cfg.Parent
			}
		}
	}
	return ""
}
