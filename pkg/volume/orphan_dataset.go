package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// poolOrphans lists what is below a parent and of no volume, and adds the uuids
// of everything below it to uuids, and the volumes to ids.
func (s *Service) poolOrphans(ctx context.Context, p *pool, uuids, ids map[string]bool) ([]Orphan, error) {
	if _, err := s.sightOf(ctx, p); err != nil {
		return nil, err
	}
	var list []zfs.Dataset
	err := s.read(ctx, "list orphans", p.cfg.Name, func(ctx context.Context) error {
		if err := s.survey(ctx, p); err != nil {
			return err
		}
		found, err := s.cfg.ZFS.Inventory(ctx, p.cfg.Parent)
		if err == nil {
			list = found
		}
		return ofParent(err, "list what is in pool %q", p.cfg.Name)
	})
	if err != nil {
		return nil, err // the operation may still run
	}
	found := sortBelow(list)
	var all []Orphan
	for _, d := range found.datasets {
		if uuid, set := d.Own(propUUID); set {
			uuids[uuid] = true
		}
		if o, orphan := p.orphan(d, found); orphan {
			o.pool, o.Bytes = p, d.Bytes("used")
			all = append(all, o)
		} else {
			ids[p.cfg.Name+strings.TrimPrefix(d.Name, p.cfg.Parent)] = true
		}
		if o, some := p.foreignSnapshots(d, found.snapshots[d.Name]); some {
			all = append(all, o)
		}
	}
	return all, nil
}

// orphan judges one dataset by where it is and what is set on it; false for a
// volume, and for what Tarn keeps others in.
func (p *pool) orphan(d zfs.Dataset, found below) (Orphan, bool) {
	rest := strings.TrimPrefix(d.Name, p.cfg.Parent+"/")
	place, name, nested := strings.Cut(rest, "/")
	_, marked := d.Own(propName)
	switch {
	case rest == tombstones || rest == incoming:
		return Orphan{}, false
	case place == tombstones && marked && !strings.Contains(name, "/"):
		return p.graveOrphan(d, found.snapshots[d.Name]), true
	case place == incoming && marked && !strings.Contains(name, "/"):
		return p.copyOrphan(d)
	case !nested && zfs.ProbeName(place):
		return Orphan{Kind: OrphanDataset, Name: d.Name, Removal: RemovalStopped, Why: "it was made to look into another dataset, and that was cut off"}, true
	}
	id := ident.VolumeID{Pool: p.cfg.Name, Component: rest}
	if _, err := ident.ParseVolumeID(id.String()); err == nil && marked {
		return Orphan{}, false
	}
	return Orphan{Kind: OrphanDataset, Name: d.Name, Removal: RemovalForeign, Why: whyForeign(d, nested, marked)}, true
}

// whyForeign says of a dataset of somebody else's what it may be. A creation
// that a power loss cut off looks like a dataset that a person has just made, so
// it is never removed for that: the next CreateVolume of its name does.
func whyForeign(d zfs.Dataset, nested, marked bool) string {
	switch {
	case nested:
		return "it is below a volume or another dataset, where Tarn makes none"
	case marked:
		return "it has the properties of a volume, and a name that no volume can have: rename it"
	}
	return "nothing says that this driver made it. Where a power loss cut off the creation of an empty volume, CreateVolume of that name completes it; else it is somebody's: move it elsewhere, or make it a volume with `tarn adopt " + d.Name + "`"
}

// graveOrphan is a deleted volume, and what keeps it.
func (p *pool) graveOrphan(d zfs.Dataset, snapshots []zfs.Dataset) Orphan {
	o := Orphan{Kind: OrphanTombstone, Name: d.Name, Removal: RemovalKept}
	var ours, foreign []string
	for _, snapshot := range snapshots {
		_, name, _ := cutSnapshot(snapshot.Name)
		switch {
		case foreignSnapshot(snapshot):
			foreign = append(foreign, name)
		case hiddenName(name):
			ours = append(ours, "clones "+strings.Join(snapshot.Clones(), ", "))
		default:
			ours = append(ours, "snapshot "+name)
		}
	}
	switch {
	case len(ours) > 0:
		o.Why = "a deleted volume that is kept for " + several(ours)
	case len(foreign) > 0:
		o.Why = "a deleted volume that only foreign snapshots hold: destroy them with `zfs destroy`, or set deleteForeignSnapshots: " + several(foreign)
	default:
		o.Removal, o.Why = RemovalStopped, "a deleted volume that nothing needs: the daemon destroys it with its next look at the pool"
	}
	return o
}

// copyOrphan is a full copy that is not a volume yet.
func (p *pool) copyOrphan(d zfs.Dataset) (Orphan, bool) {
	whole, partial := zfs.PartialOf(d.Name)
	if !partial {
		whole = d.Name
	}
	o := Orphan{Kind: OrphanCopy, Name: d.Name, Removal: RemovalStopped,
		volume: ident.VolumeID{Pool: p.cfg.Name, Component: strings.TrimPrefix(whole, p.dataset(incoming)+"/")}}
	o.Why = fmt.Sprintf("an unfinished copy: CreateVolume of %s goes on with it, DeleteVolume removes it", o.volume)
	if _, err := ident.ParseVolumeID(o.volume.String()); err != nil {
		o.Removal, o.Why = RemovalForeign, "it is where copies arrive, under a name that no volume can have"
	}
	return o, true
}

// foreignSnapshots says what other tools' snapshots of a dataset hold.
func (p *pool) foreignSnapshots(d zfs.Dataset, snapshots []zfs.Dataset) (Orphan, bool) {
	var names []string
	var each int64
	for _, snapshot := range snapshots {
		if foreignSnapshot(snapshot) {
			_, name, _ := cutSnapshot(snapshot.Name)
			names = append(names, name)
			each += snapshot.Bytes("used")
		}
	}
	if len(names) == 0 {
		return Orphan{}, false
	}
	o := Orphan{Kind: OrphanSnapshots, Name: d.Name, Bytes: each, Removal: RemovalForeign, Why: "made by another tool: " + several(names)}
	if len(names) == len(snapshots) {
		o.Bytes = d.Bytes("usedbysnapshots") // what several of them share, too
	}
	return o, true
}

// shown is how many names are written out.
const shown = 5

// several writes names for people.
func several(names []string) string {
	slices.Sort(names)
	text := names[:min(len(names), shown)]
	for i := range text {
		text[i] = ident.Printable(text[i])
	}
	if more := len(names) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(text, ", "), more)
	}
	return strings.Join(text, ", ")
}
