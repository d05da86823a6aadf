// Package node is the domain on a node: it stages a published volume (attaches
// it, makes its filesystem when there is none, mounts it), binds it where
// workloads see it, and undoes both. Any call may come in any order and again
// after a crash; what is done already is found in the mount table and in the
// stage records, and nowhere else.
//
// It knows no protobuf and no gRPC. Errors are kinds of pkg/fault whose text
// says what to do next; an error without a kind is an internal one.
package node

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/pulse"
)

// maxOperation bounds a call that came without a deadline.
const maxOperation = 15 * time.Minute

// takeBackTimeout bounds undoing what a failed call began. It is apart from the
// caller's deadline, which is often why the call failed.
const takeBackTimeout = 30 * time.Second

// Mounter is the mount table and what changes it; see *mount.Mounter.
type Mounter interface {
	// Mounts returns the whole table, the oldest mount first. It never asks a
	// filesystem, so no dead server holds it up.
	Mounts(ctx context.Context) ([]mount.Info, error)
	// At returns what is mounted exactly at target, the oldest first.
	At(ctx context.Context, target string) ([]mount.Info, error)
	// Mount mounts source at the directory target. The sensitive options are
	// in no log and no error.
	Mount(ctx context.Context, source, target, fsType string, options, sensitiveOptions []string) error
	// Bind shows source at target too, both of which exist.
	Bind(ctx context.Context, source, target string, readOnly bool) error
	// Unmount takes away everything mounted at target, verified, and removes
	// no file. Nothing mounted is a success; a busy mount is fault.Precondition.
	Unmount(ctx context.Context, target string) error
}

// Filesystems looks at and changes what block devices hold; see
// *mount.Filesystems.
type Filesystems interface {
	// Probe says what the device holds. What cannot be read is an error.
	Probe(ctx context.Context, device string) (mount.Content, error)
	// Format makes a filesystem on a blank device, or, with again, over what a
	// format that was cut off has left.
	Format(ctx context.Context, device, fsType string, options []string, again bool) error
	// Check repairs a filesystem that is not mounted, as far as that is safe.
	Check(ctx context.Context, device, fsType string) error
	// Grow makes a mounted filesystem as large as its device.
	Grow(ctx context.Context, device, mountPath string) (bool, error)
	// SizeBytes is the device's size as the kernel knows it; it asks no disk.
	SizeBytes(device string) (int64, error)
	// ErrorCount is how many errors the filesystem that is mounted from a device
	// has met, as far as it counts them; it asks no disk.
	ErrorCount(major, minor int) (int64, error)
}

// targets is what an attacher of block devices may offer: which target a
// device number belongs to now. ok is false when the kernel does not know the
// device, or it is no disk of that protocol.
type targets interface {
	TargetOfDevice(major, minor int) (iqn string, lun int, ok bool)
}

// leavings is what an attacher may offer whose protocol leaves things on the node
// that outlive the daemon.
type leavings interface {
	// Attachments lists the targets of which the node has anything, whoever made
	// it. It asks no server.
	Attachments(ctx context.Context) ([]attach.Attachment, error)
	// DetachOrphan removes what the initiator made of a target that no volume
	// needs, and says what that was. What anything may use stays:
	// fault.Precondition, saying why.
	DetachOrphan(ctx context.Context, iqn, initiator string) (removed []string, err error)
}

// Config is what a Service is made of.
type Config struct {
	// NodeID is this node; its name is what initiator and passwords derive from.
	NodeID ident.NodeID
	// Naming gives the initiator name, and tells our targets from others'.
	Naming ident.Naming
	// NodeKey is needed for volumes whose CHAP mode is derived; it may be nil.
	NodeKey chap.Key
	// StateDir is a directory of the host that survives a restart. It is made
	// when it is missing.
	StateDir string
	// Attachers are keyed by protocol: "nfs", "iscsi".
	Attachers   map[string]attach.Attacher
	Mounter     Mounter
	Filesystems Filesystems
	Host        Host
	// NFSOptions completes the user's NFS mount options; nil adds none.
	NFSOptions func(userFlags []string) []string
	// Rest is the pause between two sweeps; zero means a minute.
	Rest time.Duration
	// Operations holds the locks; nil makes a table of the Service's own.
	Operations *op.Table
	// Log hears what was healed; nil is silent.
	Log logrus.FieldLogger
}

// Service serves the calls of one node. It is safe for concurrent use.
type Service struct {
	Config
	records ledger
	disk    disk
	boot    string
	// aliveTimeout is how long a mount may take to answer; resizeTimeout, a disk
	// to show its new size.
	aliveTimeout, resizeTimeout time.Duration
	// orphanTimeout bounds the removal of one orphan.
	orphanTimeout time.Duration
	left          left
	tally         tally
	pulse         *pulse.Pulse
}

// New returns a Service and prepares its state directory.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.NodeID.Name == "":
		return nil, fault.New(fault.Invalid, "a node needs a node name")
	case !filepath.IsAbs(cfg.StateDir):
		return nil, fault.New(fault.Invalid, "state directory %q is not an absolute path", cfg.StateDir)
	case len(cfg.Attachers) == 0 || cfg.Mounter == nil || cfg.Filesystems == nil || cfg.Host == nil:
		return nil, fault.New(fault.Invalid, "a node needs at least one protocol, and its tools")
	}
	if cfg.NFSOptions == nil {
		cfg.NFSOptions = slices.Clone[[]string]
	}
	if cfg.Rest <= 0 {
		cfg.Rest = time.Minute
	}
	if cfg.Operations == nil {
		cfg.Operations = op.NewTable()
	}
	if cfg.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		cfg.Log = silent
	}
	boot, err := cfg.Host.BootID()
	if err != nil {
		return nil, err
	}
	d := hostDisk{}
	l := ledger{dir: cfg.StateDir, disk: d}
	if err := l.open(); err != nil {
		return nil, err
	}
	return &Service{
		Config: cfg, records: l, disk: d, boot: boot,
		aliveTimeout: aliveTimeout, resizeTimeout: resizeTimeout, orphanTimeout: orphanTimeout,
		pulse: pulse.New("the sweep", sweepLimit),
	}, nil
}

// ID is the node id that the controller parses.
func (s *Service) ID() string { return s.NodeID.String() }

// Ready reports why volumes cannot be staged now, or nil. It names every
// protocol that is not ready.
func (s *Service) Ready(ctx context.Context) error {
	var all []error
	for _, protocol := range s.protocols() {
		all = append(all, s.Attachers[protocol].Ready(ctx))
	}
	return errors.Join(append(all, s.records.check())...)
}

func (s *Service) protocols() []string {
	names := make([]string, 0, len(s.Attachers))
	for name := range s.Attachers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// do runs fn while it holds the volume and the path, and what else is named: two
// volumes at one path exclude each other as two calls for one volume do. fn ends with the caller's
// deadline; a child that does not end keeps the lock, and the caller still gets
// its answer. server is what such a child would be waiting for.
func (s *Service) do(ctx context.Context, what, volumeID, path, server string, fn func(context.Context) error, others ...string) error {
	return s.Operations.Do(ctx, op.Spec{
		What:    what,
		Keys:    append([]string{volumeID, "path " + path}, others...),
		Group:   server,
		Timeout: maxOperation,
		Wait:    sweepWait,
	}, fn)
}

// server names what the volume's calls wait for, as far as its records tell.
func (s *Service) server(volumeID string) string {
	recs, err := s.records.stages(volumeID)
	if err != nil || len(recs) == 0 {
		return ""
	}
	return serverOf(recs[0].Target)
}

func serverOf(t attach.Target) string {
	if len(t.Portals) > 0 {
		return t.Portals[0]
	}
	return t.Server
}
