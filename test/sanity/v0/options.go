package sanityv0

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Options say which plugin is judged and what it is expected to support.
type Options struct {
	// Endpoint is the plugin's socket: unix:///path, a plain path, or any
	// target that gRPC understands.
	Endpoint string
	// ControllerEndpoint and NodeEndpoint are set where the two services are
	// served by different processes. Default: Endpoint.
	ControllerEndpoint string
	NodeEndpoint       string

	// Parameters are those of the StorageClass, sent with every CreateVolume.
	Parameters map[string]string
	// OtherParameters are a second valid set, which makes a different volume.
	// Unset: the check of a repeat with other parameters is skipped.
	OtherParameters map[string]string
	// Secrets are sent with the RPC that each belongs to.
	Secrets Secrets

	// VolumeSize is what CreateVolume requires, in bytes. Default: 64 MiB.
	VolumeSize int64
	// Block selects raw block volumes; the default is mounted ones.
	Block bool
	// FSType is the filesystem of mounted volumes; empty leaves it to the plugin.
	FSType string
	// RefusesOtherAccess says that the plugin does not support, with
	// Parameters, the access type that is not under test (block for NFS).
	RefusesOtherAccess bool
	// UnsupportedFSType is a filesystem that the plugin refuses with
	// INVALID_ARGUMENT. Default: "no-such-fs"; "-" where it refuses none.
	UnsupportedFSType string
	// MultiNode says that the plugin supports MULTI_NODE_MULTI_WRITER for such
	// volumes. If it does not, it is expected to refuse that mode.
	MultiNode bool
	// OtherNodeID is the id of a second node that the controller knows; it
	// need not run. Unset: the checks that need two nodes are skipped.
	OtherNodeID string

	// StagingDir and TargetDir are existing directories in which staging and
	// target paths are made. Default: a temporary directory. They must be
	// short, since a path is a string field and those end at 128 bytes.
	StagingDir string
	TargetDir  string
	// Host answers for the node's filesystem. Its zero value is this machine.
	Host Host

	// Pause is called at the named points of a volume's life (see the Pause
	// constants). The plugin may be restarted in it: afterwards the suite waits
	// for Probe and expects every answer to be as before.
	Pause func(ctx context.Context, point string) error

	// Timeout bounds each call. Default: one minute.
	Timeout time.Duration
	// RetryFor bounds how long a call is repeated that is answered with ABORTED,
	// and how long a plugin may need after a pause. Default: 30 s.
	RetryFor time.Duration
	// Deadlines are those of the calls that are cut off (the deadline/ checks).
	// Default: 1 ms, 50 ms and 250 ms, too short for a real operation.
	Deadlines []time.Duration
	// Partial skips the checks of capabilities that the plugin does not offer.
	// By default it must offer all five of csi.v0.
	Partial bool
	// Only, if set, limits the run to the checks whose name it matches.
	Only *regexp.Regexp
	// Log, if set, gets one line for each call.
	Log func(format string, args ...any)
}

// Secrets holds what is sent in the six fields for secrets of csi.v0. The keys
// in a file are those of the csi-sanity program.
type Secrets struct {
	CreateVolume              map[string]string `yaml:"CreateVolumeSecret"`
	DeleteVolume              map[string]string `yaml:"DeleteVolumeSecret"`
	ControllerPublishVolume   map[string]string `yaml:"ControllerPublishVolumeSecret"`
	ControllerUnpublishVolume map[string]string `yaml:"ControllerUnpublishVolumeSecret"`
	NodeStageVolume           map[string]string `yaml:"NodeStageVolumeSecret"`
	NodePublishVolume         map[string]string `yaml:"NodePublishVolumeSecret"`
}

func (s Secrets) all() []map[string]string {
	return []map[string]string{
		s.CreateVolume, s.DeleteVolume, s.ControllerPublishVolume,
		s.ControllerUnpublishVolume, s.NodeStageVolume, s.NodePublishVolume,
	}
}

// The points at which Options.Pause is called.
const (
	PauseCreated       = "created"        // CreateVolume has answered
	PausePublished     = "published"      // ControllerPublishVolume has answered
	PauseStaged        = "staged"         // NodeStageVolume has answered
	PauseNodePublished = "node-published" // NodePublishVolume has answered, data is written
	PauseUnpublished   = "unpublished"    // NodeUnpublishVolume has answered, the volume is still staged
)

func (o Options) withDefaults() (Options, error) {
	if o.Endpoint == "" && (o.ControllerEndpoint == "" || o.NodeEndpoint == "") {
		return o, errors.New("no endpoint is given")
	}
	if o.ControllerEndpoint == "" {
		o.ControllerEndpoint = o.Endpoint
	}
	if o.NodeEndpoint == "" {
		o.NodeEndpoint = o.Endpoint
	}
	if o.VolumeSize == 0 {
		o.VolumeSize = 64 << 20
	}
	if o.VolumeSize < 1<<20 || o.VolumeSize > 1<<40 {
		return o, fmt.Errorf("volume size %d is not between 1 MiB and 1 TiB", o.VolumeSize)
	}
	if o.Block && o.FSType != "" {
		return o, errors.New("a block volume has no filesystem type")
	}
	if o.UnsupportedFSType == "" {
		o.UnsupportedFSType = "no-such-fs"
	}
	for _, dir := range []string{o.StagingDir, o.TargetDir} {
		if dir != "" && !filepath.IsAbs(dir) {
			return o, fmt.Errorf("directory %q is not absolute", dir)
		}
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.RetryFor == 0 {
		o.RetryFor = 30 * time.Second
	}
	if o.Deadlines == nil {
		o.Deadlines = []time.Duration{time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}
	}
	o.Host = o.Host.withDefaults()
	return o, nil
}

// capability is the way in which the volumes under test are used.
func (o Options) capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return accessCapability(o.Block, o.FSType, mode)
}

// otherAccess is the capability with the access type that is not under test, for
// one writer.
func (o Options) otherAccess() *csi.VolumeCapability {
	return accessCapability(!o.Block, "", singleWriter)
}

// unsupported is a capability that the plugin must refuse, or nil where the
// options name none.
func (o Options) unsupported() *csi.VolumeCapability {
	switch {
	case o.UnsupportedFSType != "-":
		return accessCapability(false, o.UnsupportedFSType, singleWriter)
	case !o.MultiNode:
		return o.capability(multiWriter)
	case o.RefusesOtherAccess:
		return o.otherAccess()
	}
	return nil
}

func accessCapability(block bool, fsType string, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}
	}
	return c
}

const (
	singleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	singleReader = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	multiWriter  = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)
