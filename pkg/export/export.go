// Package export says what a storage host offers to nodes, whatever the
// protocol. The kernel's exports are a projection of the volumes' ZFS
// properties: an Exporter brings the kernel to the wanted state and reads it
// back; it stores nothing of its own.
package export

import (
	"context"
	"net/netip"
	"slices"

	"github.com/tarn-csi/tarn/pkg/chap"
)

// Volume is the wanted state of one volume's export: open to exactly the nodes
// of Grants and closed to everybody else.
type Volume struct {
	// ID is the CSI volume id, for messages and comments only.
	ID string
	// UUID is 32 lower-case hexadecimal digits, never reused. SCSI serial and
	// IQN derive from it.
	UUID string
	// Source is what is exported: the directory where the filesystem is
	// mounted (nfs), or the zvol's device path under /dev/zvol (iscsi).
	Source string
	// SizeBytes is the size that the device must have (iscsi).
	SizeBytes int64
	// Portals are where the volume is served.
	Portals []netip.AddrPort
	// Squash is how user ids are mapped (nfs).
	Squash Squash
	// Grants has one entry a node, in any order.
	Grants []Grant
}

// Squash says which users of a client the server maps to the anonymous user.
type Squash struct {
	// Mode is none, root or all.
	Mode string
	// AnonUID and AnonGID are what they are mapped to; used with root and all.
	AnonUID, AnonGID uint32
}

// Grant opens a volume to one node.
type Grant struct {
	// Node is the node's name.
	Node string
	// Addresses are the node's addresses, literal and unicast (nfs).
	Addresses []netip.Addr
	// Initiator is the node's iSCSI name (iscsi).
	Initiator string
	// ReadOnly makes the server refuse every write of this node.
	ReadOnly bool
	// CHAP is what the node must present; nil lets the initiator name alone
	// suffice (iscsi).
	CHAP *chap.Credentials
}

// Status is what the kernel shows of one exported volume.
type Status struct {
	// UUID is the volume's, as in Volume.
	UUID string
	// Complete reports that everything an Ensure makes is there.
	Complete bool
	// Initiators or addresses that have access, sorted.
	Clients []string
}

// Other is an export that another instance, another tool or a person made.
type Other struct {
	// Name is how people know it: HOST:/PATH (nfs), or a target's name (iscsi).
	Name string
	// Source is the directory or device that it exports, as far as that can be
	// told.
	Source string
}

// Exporter brings the kernel's export tables to a wanted state. Its methods
// may be called for different volumes at once; calls for one volume are
// serialised by the caller.
type Exporter interface {
	// Ensure makes the kernel serve v to exactly v.Grants, and returns only
	// after it has read that back. A node that lost its grant loses its live
	// session too. It repairs whatever is half made, and is cheap when
	// nothing is to do. Without grants it is Remove.
	//
	// Errors: fault.Unavailable when a module, server or device is missing;
	// fault.Precondition when the name is taken by something that is not this
	// volume's.
	Ensure(ctx context.Context, v Volume) error
	// Remove takes down everything that Ensure made for the volume, from
	// whatever point an earlier Remove or Ensure was cut off. Nothing there
	// is a success.
	Remove(ctx context.Context, uuid string) error
	// List returns what the kernel shows of this instance's exports. Exports
	// of others are never in it.
	List(ctx context.Context) ([]Status, error)
	// Look is List for one volume, at a cost that does not grow with their
	// number; false when nothing of it is exported.
	Look(ctx context.Context, uuid string) (Status, bool, error)
	// Ready reports why the kernel cannot serve now, or nil.
	Ready(ctx context.Context) error
}

// SortedGrants returns the grants ordered by node name.
func (v Volume) SortedGrants() []Grant {
	g := slices.Clone(v.Grants)
	slices.SortFunc(g, func(a, b Grant) int {
		if a.Node < b.Node {
			return -1
		}
		if a.Node > b.Node {
			return 1
		}
		return 0
	})
	return g
}
