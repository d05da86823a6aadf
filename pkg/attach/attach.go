// Package attach is the initiator's side: it makes a published volume
// reachable on this node, and undoes that. It mounts nothing.
package attach

import (
	"context"

	"github.com/tarn-csi/tarn/pkg/chap"
)

// Target says where a published volume is found. It holds what the publish
// context carried, so that it can be kept in a stage record; credentials are
// apart because a record must hold no secret.
type Target struct {
	// Server and Share name an NFS export.
	Server string `json:"server,omitempty"`
	Share  string `json:"share,omitempty"`
	// IQN, Portals (HOST:PORT or HOST, IPv6 in brackets or bare), LUN and
	// Serial name an iSCSI disk. Serial is compared with what the disk says
	// before it is used.
	IQN     string   `json:"iqn,omitempty"`
	Portals []string `json:"portals,omitempty"`
	LUN     int      `json:"lun,omitempty"`
	Serial  string   `json:"serial,omitempty"`
	// Initiator is the name this node logs in with.
	Initiator string `json:"initiator,omitempty"`
}

// Device is an attached volume.
type Device struct {
	// Path is what to mount: HOST:/share, or the path of a block device.
	Path string
	// Major and Minor are the block device's number; zero for NFS.
	Major, Minor uint32
}

// Attachment is what a node has of one target, whoever made it: sessions, or
// records of the initiator's that make them.
type Attachment struct {
	IQN string
	// Server is where the target is reached; "" where nothing tells.
	Server string
	// Sessions is how many sessions there are, and Lost how many of them carry
	// nothing now.
	Sessions, Lost int
}

// Attacher attaches the volumes of one protocol. Calls for one volume are
// serialised by the caller.
type Attacher interface {
	// Attach makes the volume reachable and returns what to mount. A volume
	// that is attached already is a success. What a failed Attach began, it
	// takes back.
	//
	// Errors: fault.Unavailable when the server does not answer or the device
	// does not appear in time; fault.Precondition when the server refuses this
	// node, or when the disk that appeared is not the one that was published.
	Attach(ctx context.Context, t Target, c *chap.Credentials) (Device, error)
	// Find returns the device of a volume that is attached now, and false
	// when it is not.
	Find(ctx context.Context, t Target) (Device, bool, error)
	// Detach flushes and removes the volume's device, session and records, and
	// verifies that they are gone. The caller has unmounted it. A volume that
	// is not attached is a success.
	Detach(ctx context.Context, t Target) error
	// Rescan makes the kernel read the size of an attached volume again. There
	// is nothing to do where the kernel keeps none.
	//
	// Errors: fault.Precondition when the volume is not attached;
	// fault.Unavailable when its server does not answer.
	Rescan(ctx context.Context, t Target) error
	// Reachable reports why the server of an attached volume cannot be reached
	// now, as far as the kernel knows without asking it, or nil. The error is
	// fault.Unavailable, or fault.Precondition when the volume is not attached.
	Reachable(ctx context.Context, t Target) error
	// Ready reports why nothing can be attached now, or nil.
	Ready(ctx context.Context) error
}
