package node

import (
	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
)

// recordVersion changes when an older daemon could misread a record.
const recordVersion = 1

// stateFormatting: mkfs was started here on a blank device, and the filesystem
// has not been mounted since. Only then is a device formatted that is not blank.
const stateFormatting = "formatting"

// A stageRecord is what is remembered of one volume at one staging path. It is
// on the disk before the first side effect of a stage and goes after the last
// of an unstage. It holds no secret and no mount flag.
type stageRecord struct {
	Version     int           `json:"version"`
	VolumeID    string        `json:"volumeID"`
	StagingPath string        `json:"stagingPath"`
	Protocol    string        `json:"protocol"`
	Target      attach.Target `json:"target"`
	Type        string        `json:"type"`
	// FSType is the filesystem that was asked for; "nfs" for NFS.
	FSType string `json:"fsType,omitempty"`
	// ReadOnly says that the mount was wanted read-only, for whatever reason.
	ReadOnly bool `json:"readOnly,omitempty"`
	// WriteProtected says that the controller granted no write.
	WriteProtected bool   `json:"writeProtected,omitempty"`
	State          string `json:"state,omitempty"`
	// Source is what the mount table shows for an NFS volume.
	Source string `json:"source,omitempty"`
	// Boot, Major and Minor are the block device once it is attached; they say
	// nothing after a reboot.
	Boot  string `json:"boot,omitempty"`
	Major int    `json:"major,omitempty"`
	Minor int    `json:"minor,omitempty"`
}

func (r *stageRecord) block() bool { return r.Type == access.Block.String() }

// sameVolume reports whether both name one disk or export. Portals and servers
// are no part of that: they may move.
func (r *stageRecord) sameVolume(w *stageRecord) bool {
	return r.Protocol == w.Protocol && r.Target.Share == w.Target.Share &&
		r.Target.IQN == w.Target.IQN && r.Target.LUN == w.Target.LUN && r.Target.Serial == w.Target.Serial
}

// differs names the first field in which two stages exclude each other, or "".
// The access mode is none: what a stage does depends on it only where reading
// and writing differ.
func (r *stageRecord) differs(w *stageRecord) string {
	switch {
	case r.Protocol != w.Protocol:
		return "protocol"
	case r.Target.Share != w.Target.Share:
		return "share"
	case !r.sameVolume(w):
		return "serial"
	case r.Type != w.Type:
		return "access type"
	case r.FSType != w.FSType:
		return "fs type"
	case r.ReadOnly != w.ReadOnly:
		return "readonly"
	}
	return ""
}

// A publishRecord is what the mount table does not show of one publication. It
// is on the disk before the bind and goes after the unmount; without its mount
// it counts for nothing.
type publishRecord struct {
	Version    int         `json:"version"`
	VolumeID   string      `json:"volumeID"`
	TargetPath string      `json:"targetPath"`
	Type       string      `json:"type"`
	Mode       access.Mode `json:"mode"`
	FSType     string      `json:"fsType,omitempty"`
	ReadOnly   bool        `json:"readOnly,omitempty"`
	// DeviceReadOnly says that this publication made the block device itself
	// read-only, so that ending it must undo that.
	DeviceReadOnly bool `json:"deviceReadOnly,omitempty"`
	// Boot, Major, Minor and Root are what was bound: a filesystem's number and
	// directory, or for a block volume the device's number.
	Boot  string `json:"boot"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	Root  string `json:"root,omitempty"`
}

func (r *publishRecord) block() bool { return r.Type == access.Block.String() }

// differs names the first argument in which two publications differ, or "".
// Contexts are not compared: orchestrators add the pod to them. Nor is the
// staging path: it changes with an upgrade of the orchestrator, under
// publications that go on.
func (r *publishRecord) differs(w *publishRecord) string {
	switch {
	case r.Type != w.Type:
		return "access type"
	case r.Mode != w.Mode:
		return "access mode"
	case r.FSType != w.FSType:
		return "fs type"
	case r.ReadOnly != w.ReadOnly:
		return "readonly"
	}
	return ""
}
