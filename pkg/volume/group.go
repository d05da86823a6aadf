package volume

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Group is what callers learn of a group of snapshots.
type Group struct {
	ID      string
	Created time.Time
	// Snapshots are the members by id.
	Snapshots []Snapshot
}

// groupRecord is what each member of a group says of the whole.
type groupRecord struct {
	// Name is the name that the orchestrator gave.
	Name string `json:"name"`
	// Members are the volumes, by the component of their ids.
	Members map[string]groupMember `json:"members"`
}

// groupMember is a volume as it was when the group was taken.
type groupMember struct {
	UUID  string `json:"uuid"`
	Bytes int64  `json:"bytes"`
}

// groupSnapshotID is the id of a member.
func groupSnapshotID(g ident.GroupID, volume string) ident.SnapshotID {
	return ident.SnapshotID{Volume: ident.VolumeID{Pool: g.Pool, Component: volume}, Component: g.Member()}
}

// CreateGroup takes snapshots of several volumes of one pool at one instant, or
// finds the group that an earlier call of the same name took.
//
// Errors: fault.Invalid for volumes of different pools and for more than fit;
// fault.NotFound for a volume; fault.Exists when the name is taken by a group of
// other volumes.
func (s *Service) CreateGroup(ctx context.Context, name string, volumeIDs []string, parameters map[string]string) (Group, error) {
	if name == "" {
		return Group{}, fault.New(fault.Invalid, "the group snapshot name is empty")
	}
	if err := checkSnapshotParameters(parameters); err != nil {
		return Group{}, err
	}
	ids, err := s.parseGroupVolumes(volumeIDs)
	if err != nil {
		return Group{}, err
	}
	id := ident.GroupID{Pool: ids[0].Pool, Component: ident.Component(name)}
	var made Group
	err = s.lockGroup(ctx, "CreateVolumeGroupSnapshot", id, ids, func(ctx context.Context) error {
		g, err := s.takeGroup(ctx, id, name, ids)
		if err == nil {
			made = g.group()
		}
		return err
	})
	if err != nil {
		return Group{}, err // the operation may still run
	}
	return made, nil
}

// parseGroupVolumes reads the ids of volumes that are in one pool, each once.
func (s *Service) parseGroupVolumes(volumeIDs []string) ([]ident.VolumeID, error) {
	if len(volumeIDs) == 0 {
		return nil, fault.New(fault.Invalid, "no source volume is given")
	}
	seen := map[ident.VolumeID]bool{}
	var ids []ident.VolumeID
	for _, raw := range volumeIDs {
		id, err := s.parse(raw)
		switch {
		case err != nil:
			return nil, err
		case seen[id]:
			return nil, fault.New(fault.Invalid, "volume %s is given twice", id)
		case len(ids) > 0 && id.Pool != ids[0].Pool:
			return nil, fault.New(fault.Invalid, "volumes %s and %s are in different pools, which have no common instant: make a group for each", ids[0], id)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, nil
}

// lockGroup runs fn as an operation on a group. The name is locked in all pools.
func (s *Service) lockGroup(ctx context.Context, what string, id ident.GroupID, volumes []ident.VolumeID, fn func(context.Context) error) error {
	return s.lockAll(ctx, what, volumes, []string{"snapshot " + id.Member()}, fn)
}

// group is a group as it was found.
type group struct {
	id      ident.GroupID
	record  groupRecord
	created time.Time
	// members are the ones that are there.
	members []ident.SnapshotID
}

// group is the caller's view.
func (g *group) group() Group {
	r := Group{ID: g.id.String(), Created: g.created}
	for _, id := range g.members {
		r.Snapshots = append(r.Snapshots, Snapshot{
			ID: id.String(), VolumeID: id.Volume.String(), GroupID: r.ID, Created: g.created,
			SizeBytes: g.record.Members[id.Volume.Component].Bytes,
		})
	}
	slices.SortFunc(r.Snapshots, func(a, b Snapshot) int { return strings.Compare(a.ID, b.ID) })
	return r
}

// missing is a member that is not there; false when all are.
func (g *group) missing() (ident.SnapshotID, bool) {
	for _, volume := range slices.Sorted(maps.Keys(g.record.Members)) {
		if id := groupSnapshotID(g.id, volume); !slices.Contains(g.members, id) {
			return id, true
		}
	}
	return ident.SnapshotID{}, false
}

func (s *Service) takeGroup(ctx context.Context, id ident.GroupID, name string, volumes []ident.VolumeID) (*group, error) {
	p, err := s.pool(id.Pool)
	if err != nil {
		return nil, err
	}
	if err := s.groupElsewhere(ctx, id); err != nil {
		return nil, err
	}
	g, err := s.seenGroup(ctx, p, id, volumes)
	if err != nil {
		return nil, err
	}
	if g != nil {
		return g, s.sameGroup(ctx, p, g, volumes)
	}
	records := make([]*record, len(volumes))
	for i, v := range volumes {
		if _, records[i], err = s.find(ctx, v); err != nil {
			return nil, err
		}
	}
	return s.newGroup(ctx, p, id, name, records)
}

// newGroup takes the snapshots, all of them or none.
func (s *Service) newGroup(ctx context.Context, p *pool, id ident.GroupID, name string, records []*record) (*group, error) {
	g := &group{id: id, record: groupRecord{Name: name, Members: map[string]groupMember{}}, created: time.Now().UTC()}
	var names []string
	for _, r := range records {
		g.record.Members[r.id.Component] = groupMember{UUID: r.uuid, Bytes: r.sizeBytes}
		names = append(names, r.dataset.Name+"@"+id.Member())
	}
	marks, err := g.marks()
	if err != nil {
		return nil, err
	}
	err = s.cfg.ZFS.Snapshot(ctx, zfs.SnapshotSpec{Names: names, Properties: marks})
	if errors.Is(err, zfs.ErrExists) {
		return s.unexpectedGroup(ctx, p, id, records)
	}
	if err != nil {
		return nil, describe(err, "take group snapshot %s", id)
	}
	for _, r := range records {
		member := groupSnapshotID(id, r.id.Component)
		p.index.addSnapshot(member, place{dataset: r.dataset.Name, uuid: r.uuid, group: id.Component})
		g.members = append(g.members, member)
	}
	return g, nil
}

// marks are the properties of each member: the same for all, since they are set
// in the one command that takes the snapshots.
func (g *group) marks() ([]zfs.Setting, error) {
	name, err := json.Marshal(g.record.Name)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(g.record)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxProperty {
		return nil, fault.New(fault.Invalid, "a group of %d volumes is too large: what each member says of the whole would have %d bytes of at most %d: make several groups",
			len(g.record.Members), len(raw), maxProperty)
	}
	return []zfs.Setting{
		{Name: propName, Value: string(name)},
		{Name: propCreated, Value: g.created.Format(time.RFC3339Nano)},
		{Name: propGroup, Value: string(raw)},
	}, nil
}

// groupElsewhere refuses a name that a group of another pool has.
func (s *Service) groupElsewhere(ctx context.Context, id ident.GroupID) error {
	for _, name := range s.order {
		other := ident.GroupID{Pool: name, Component: id.Component}
		p, err := s.pool(name)
		if other == id || err != nil {
			continue // a pool that is not there is in no one's way
		}
		g, err := s.seenGroup(ctx, p, other, nil)
		if err != nil {
			return err
		}
		if g != nil {
			return fault.New(fault.Exists, "a group snapshot of that name exists: it is %s, of volumes of another pool: choose another name", other)
		}
	}
	return nil
}

// sameGroup refuses a group of other volumes, of deleted ones whose names others
// have now, and one that was deleted in part.
func (s *Service) sameGroup(ctx context.Context, p *pool, g *group, volumes []ident.VolumeID) error {
	var want []string
	for _, v := range volumes {
		want = append(want, v.Component)
	}
	slices.Sort(want)
	if have := slices.Sorted(maps.Keys(g.record.Members)); !slices.Equal(have, want) {
		return fault.New(fault.Exists, "group snapshot %s exists and is of the volumes %s of pool %s", g.id, strings.Join(have, ", "), g.id.Pool)
	}
	if id, missing := g.missing(); missing {
		return fault.New(fault.Exists, "group snapshot %s exists without its member %s: delete the group", g.id, id)
	}
	for _, v := range volumes {
		at, _, err := p.index.snapshot(p.cfg.Name, groupSnapshotID(g.id, v.Component))
		if err != nil {
			return err
		}
		if at.dataset == p.dataset(v.Component) {
			continue
		}
		if _, _, err := s.find(ctx, v); err == nil {
			return fault.New(fault.Exists, "group snapshot %s exists: it is of a deleted volume of the name of %s: choose another name or delete it first", g.id, v)
		} else if fault.Kind(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// seenGroup is the group that the index knows under an id; nil when it knows
// none. One member is read, which tells of the whole. locked are the volumes
// whose locks the caller holds.
func (s *Service) seenGroup(ctx context.Context, p *pool, id ident.GroupID, locked []ident.VolumeID) (*group, error) {
	members, err := p.index.members(p.cfg.Name, id.Component)
	if err != nil {
		return nil, err
	}
	for _, member := range slices.SortedFunc(maps.Keys(members), bySnapshotID) {
		n, err := s.seen(ctx, p, member, slices.Contains(locked, member.Volume))
		if err != nil {
			return nil, err
		}
		if n == nil {
			delete(members, member)
			continue
		}
		if n.err != nil {
			return nil, n.err
		}
		if n.group != nil && n.groupID() == id {
			return &group{id: id, record: *n.group, created: n.created, members: slices.Collect(maps.Keys(members))}, nil
		}
	}
	return nil, nil
}

func bySnapshotID(a, b ident.SnapshotID) int { return strings.Compare(a.String(), b.String()) }

// unexpectedGroup answers for a group that the index did not know, such as one
// whose maker was cut off.
func (s *Service) unexpectedGroup(ctx context.Context, p *pool, id ident.GroupID, records []*record) (*group, error) {
	var volumes []ident.VolumeID
	for _, r := range records {
		volumes = append(volumes, r.id)
		member := groupSnapshotID(id, r.id.Component)
		n, err := s.readAt(ctx, p, member, r.dataset.Name)
		if err != nil {
			return nil, err
		}
		if n != nil {
			p.index.addSnapshot(member, n.place())
		}
	}
	g, err := s.seenGroup(ctx, p, id, volumes)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fault.New(fault.Exists, "one of the volumes has a snapshot @%s that was not made by this driver: rename it, or choose another name", id.Member())
	}
	return g, s.sameGroup(ctx, p, g, volumes)
}

// GetGroup returns a group. snapshotIDs are what the caller believes to be its
// members; none at all are not compared.
//
// fault.NotFound when it does not exist; fault.Invalid for other members.
func (s *Service) GetGroup(ctx context.Context, groupID string, snapshotIDs []string) (Group, error) {
	id, err := s.parseGroup(groupID)
	if err != nil {
		return Group{}, err
	}
	var found Group
	err = s.read(ctx, "GetVolumeGroupSnapshot", id.Pool, func(ctx context.Context) error {
		p, err := s.pool(id.Pool)
		if err != nil {
			return err
		}
		g, err := s.seenGroup(ctx, p, id, nil)
		if err != nil {
			return err
		}
		if g == nil {
			return fault.New(fault.NotFound, "group snapshot %s does not exist", id)
		}
		if err := g.consistsOf(snapshotIDs); err != nil {
			return err
		}
		found = g.group()
		return nil
	})
	if err != nil {
		return Group{}, err // the operation may still run
	}
	return found, nil
}

// parseGroup reads an id that must name a pool of the configuration.
func (s *Service) parseGroup(id string) (ident.GroupID, error) {
	g, err := ident.ParseGroupID(id)
	if err != nil {
		return g, err
	}
	if s.pools[g.Pool] == nil {
		return g, fault.New(fault.NotFound, "group snapshot %s does not exist: no pool %q is configured", g, g.Pool)
	}
	return g, nil
}

// consistsOf refuses a list of members that is not the group's.
func (g *group) consistsOf(snapshotIDs []string) error {
	if len(snapshotIDs) == 0 {
		return nil
	}
	var have []string
	for volume := range g.record.Members {
		have = append(have, groupSnapshotID(g.id, volume).String())
	}
	slices.Sort(have)
	if want := slices.Sorted(slices.Values(snapshotIDs)); !slices.Equal(have, want) {
		return fault.New(fault.Invalid, "snapshot_ids are not the members of group snapshot %s, which are %s", g.id, strings.Join(have, ", "))
	}
	return nil
}
