package volume

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// The user properties of a snapshot, beside the ones that volumes have too. It
// is set together with propName and propSize in the command that takes the
// snapshot; what it inherits from its volume says of which it was taken.
const (
	propCreated = "tarn:created"
	propGroup   = "tarn:group"
)

// The names that hidden snapshots begin with; no orchestrator's name begins
// with a dot, and a uuid follows.
const (
	// deletedMark is for a deleted snapshot that clones still need.
	deletedMark = ".deleted."
	// cloneMark is for the moment in which a volume is cloned, and as long as
	// its clone lives.
	cloneMark = ".clone."
	// copyMark is for a volume while it is copied, as long as that takes.
	copyMark = ".copy."
)

// Snapshot is what callers learn of a snapshot.
type Snapshot struct {
	ID, VolumeID string
	// SizeBytes is what a volume needs to hold it.
	SizeBytes int64
	// Created is when it was taken, by this host's clock, and never changes.
	Created time.Time
	// GroupID is the group that it was taken with and lives with, or empty.
	GroupID string
}

// snapshot is what a snapshot's properties say.
type snapshot struct {
	id      ident.SnapshotID
	dataset zfs.Dataset
	bytes   int64
	created time.Time
	group   *groupRecord
	// err says why the properties make no sense; such a snapshot is listed, and
	// can be deleted.
	err error
}

// readSnapshot reads a snapshot of an orchestrator out of its properties; false
// when it has none of its own, as every foreign one.
func readSnapshot(id ident.SnapshotID, d zfs.Dataset) (*snapshot, bool) {
	if _, marked := d.Own(propName); !marked {
		return nil, false
	}
	n := &snapshot{id: id, dataset: d}
	n.err = n.parse()
	return n, true
}

func (n *snapshot) parse() error {
	broken := func(property string, err error) error {
		return fault.New(fault.Precondition, "snapshot %s: property %s of %s makes no sense (%v): set it again by hand or delete the snapshot",
			n.id, property, n.dataset.Name, err)
	}
	created, _ := n.dataset.Own(propCreated)
	var err error
	if n.created, err = time.Parse(time.RFC3339Nano, created); err != nil {
		return broken(propCreated, err)
	}
	if raw, member := n.dataset.Own(propGroup); member {
		var g groupRecord
		if err := json.Unmarshal([]byte(raw), &g); err != nil {
			return broken(propGroup, err)
		}
		m, ok := g.Members[n.id.Volume.Component]
		if !ok {
			return broken(propGroup, fmt.Errorf("volume %s is no member", n.id.Volume))
		}
		n.group, n.bytes = &g, m.Bytes
		return nil
	}
	size, _ := n.dataset.Own(propSize)
	if n.bytes, err = strconv.ParseInt(size, 10, 64); err != nil {
		return broken(propSize, err)
	}
	return nil
}

// uuid is the volume's from which the snapshot was taken, which it inherits;
// only a read of the snapshot itself tells it, no listing.
func (n *snapshot) uuid() string {
	v, _ := n.dataset.Value(propUUID)
	return v
}

// place is where the snapshot is.
func (n *snapshot) place() place {
	dataset, _, _ := cutSnapshot(n.dataset.Name)
	at := place{dataset: dataset, uuid: n.uuid()}
	if n.group != nil {
		at.group = n.groupID().Component
	}
	return at
}

func (n *snapshot) groupID() ident.GroupID {
	return ident.GroupID{Pool: n.id.Volume.Pool, Component: ident.Component(n.group.Name)}
}

// snapshot is the caller's view.
func (n *snapshot) snapshot() Snapshot {
	r := Snapshot{ID: n.id.String(), VolumeID: n.id.Volume.String(), SizeBytes: n.bytes, Created: n.created}
	if n.group != nil {
		r.GroupID = n.groupID().String()
	}
	return r
}

// snapshotSettings are the properties that mark a new snapshot.
func snapshotSettings(name string, bytes int64, now time.Time) ([]zfs.Setting, error) {
	encoded, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	if len(encoded) > maxProperty {
		return nil, fault.New(fault.Invalid, "the snapshot's name is too long: %d bytes of at most %d", len(encoded), maxProperty)
	}
	return []zfs.Setting{
		{Name: propName, Value: string(encoded)},
		{Name: propSize, Value: strconv.FormatInt(bytes, 10)},
		{Name: propCreated, Value: now.UTC().Format(time.RFC3339Nano)},
	}, nil
}

// hiddenSnapshot is a snapshot of the driver's own. With a property of its own
// it is in listings.
func hiddenSnapshot(full string) zfs.SnapshotSpec {
	return zfs.SnapshotSpec{
		Names:      []string{full},
		Properties: []zfs.Setting{{Name: propCreated, Value: time.Now().UTC().Format(time.RFC3339Nano)}},
	}
}
