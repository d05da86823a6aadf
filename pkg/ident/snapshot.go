package ident

import (
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// SnapshotID names a snapshot to orchestrators. It stays the same when the
// volume is deleted before its snapshot.
type SnapshotID struct {
	Volume    VolumeID
	Component string
}

func (id SnapshotID) String() string { return id.Volume.String() + "@" + id.Component }

// ParseSnapshotID reads an id. An empty one is fault.Invalid; one that could
// not be ours is fault.NotFound.
func ParseSnapshotID(s string) (SnapshotID, error) {
	if s == "" {
		return SnapshotID{}, fault.New(fault.Invalid, "the snapshot id is empty")
	}
	volume, component, _ := strings.Cut(s, "@")
	id, err := ParseVolumeID(volume)
	if err != nil || !ValidComponent(component) {
		return SnapshotID{}, fault.New(fault.NotFound, "snapshot %q does not exist: a snapshot id has the form POOL/VOLUME@NAME", Printable(s))
	}
	return SnapshotID{Volume: id, Component: component}, nil
}

// groupMark stands between the pool and the name of a group of snapshots. With
// it an id has two slashes, so no volume has it.
const groupMark = "/group/"

// GroupID names a group of snapshots to orchestrators.
type GroupID struct {
	Pool      string
	Component string
}

func (id GroupID) String() string { return id.Pool + groupMark + id.Component }

// Member is the component that each snapshot of the group has. No snapshot's
// name is mapped to it, since no name has a NUL.
func (id GroupID) Member() string { return Component("group\x00" + id.Component) }

// ParseGroupID reads an id. An empty one is fault.Invalid; one that could not
// be ours is fault.NotFound.
func ParseGroupID(s string) (GroupID, error) {
	if s == "" {
		return GroupID{}, fault.New(fault.Invalid, "the group snapshot id is empty")
	}
	pool, component, ok := strings.Cut(s, groupMark)
	if !ok || !ValidPool(pool) || !ValidComponent(component) {
		return GroupID{}, fault.New(fault.NotFound, "group snapshot %q does not exist: its id has the form POOL/group/NAME", Printable(s))
	}
	return GroupID{Pool: pool, Component: component}, nil
}

// ValidComponent reports whether s has the form of what Component returns.
func ValidComponent(s string) bool { return len(s) <= MaxComponent && componentPattern.MatchString(s) }
