// Package ephemeral serves volumes that stand in a pod's own specification, and
// not in a claim: the publish on the node makes them, the unpublish destroys them.
// It is the domain of a node on the storage host. The pool is the controller's
// alone, which is asked as orchestrators ask it; staging and mounting are
// pkg/node's.
//
// What a volume is made of is recorded before the controller is asked for
// anything, and forgotten last, so that whenever a daemon ends, the unpublish finds
// what there is to be undone.
package ephemeral

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/volume"
)

const (
	// maxOperation bounds a call that came without a deadline.
	maxOperation = 15 * time.Minute
	// takeBackTimeout bounds undoing what a failed publish began. It is apart from
	// the caller's deadline, which is often why it failed.
	takeBackTimeout = time.Minute
)

// Controller is who makes and opens volumes: *volume.Service in this process, or
// another process behind its socket.
type Controller interface {
	Get(ctx context.Context, volumeID string) (volume.Volume, error)
	Create(ctx context.Context, r volume.CreateRequest) (volume.Volume, error)
	Publish(ctx context.Context, r volume.PublishRequest) (map[string]string, error)
	Unpublish(ctx context.Context, volumeID, nodeID string) error
	Delete(ctx context.Context, volumeID string) error
}

// Config is what a Service is made of.
type Config struct {
	// Pool is where volumes are made. It is the administrator's choice; without it
	// no new one is.
	Pool string
	// Protocols are those of the node; the first serves where none is asked for.
	Protocols []string
	// DefaultBytes is the size where none is asked for, and MaxBytes the largest.
	DefaultBytes, MaxBytes int64
	// MaxVolumes is how many this node has at once.
	MaxVolumes int64
	Controller Controller
	Node       *node.Service
	// Dir is a directory of the host that survives a restart, for the records and
	// the staging paths. It is made when it is missing.
	Dir string
	// Log hears what was healed.
	Log logrus.FieldLogger
}

// Service serves one node. It is safe for concurrent use.
type Service struct {
	Config
	records ledger
	// counting is held from the count of the records until one more is there.
	counting sync.Mutex
}

// New returns a Service and prepares its directory.
func New(cfg Config) (*Service, error) {
	switch {
	case !filepath.IsAbs(cfg.Dir):
		return nil, fault.New(fault.Invalid, "directory %q of ephemeral volumes is not an absolute path", cfg.Dir)
	case cfg.Controller == nil || cfg.Node == nil || len(cfg.Protocols) == 0 || cfg.Log == nil:
		return nil, fault.New(fault.Invalid, "ephemeral volumes need a controller, a node, its protocols and a log")
	}
	l := ledger{cfg.Dir}
	if err := l.open(); err != nil {
		return nil, err
	}
	return &Service{Config: cfg, records: l}, nil
}

// handlePattern is what the orchestrator's own id of such a volume may be. It is
// never the id of a volume of ours, which has a slash.
var handlePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// VolumeID is the id that the rest of the driver has for an ephemeral volume;
// every other id is returned as it is.
func (s *Service) VolumeID(id string) (string, error) {
	if !handlePattern.MatchString(id) {
		return id, nil
	}
	r, err := s.records.read(id)
	if err != nil || r == nil {
		return id, err
	}
	return r.VolumeID, nil
}

// do runs fn while it holds the volume.
func (s *Service) do(ctx context.Context, what, handle string, fn func(context.Context) error) error {
	return s.Node.Operations.Do(ctx, op.Spec{What: what, Keys: []string{"ephemeral " + handle}, Timeout: maxOperation}, fn)
}

// nameOf is the volume's name to the controller. It is the same at each repeat,
// and so is the id that comes of it.
func nameOf(handle string) string { return "ephemeral-" + handle }

func (s *Service) volumeID(handle string) string {
	return ident.VolumeID{Pool: s.Pool, Component: ident.Component(nameOf(handle))}.String()
}

// isEphemeral reports whether a volume was made for a pod.
func isEphemeral(v volume.Volume) bool { return v.Context[volume.ParamEphemeral] == "true" }

// uncertain reports whether an orchestrator takes a failure for one of which
// something may be left, so that it will unpublish. After every other it need not.
func uncertain(ctx context.Context, err error) bool {
	switch kind := fault.Kind(err); kind {
	case nil:
		return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	default:
		return slices.Contains([]error{fault.Unavailable, fault.Busy, fault.Aborted, fault.Exhausted}, kind)
	}
}

// checkCapability refuses what a pod's own volume cannot be.
func checkCapability(c access.Capability) error {
	switch {
	case c.Type != access.Mount:
		return fault.New(fault.Invalid, "an ephemeral volume is a filesystem: use a claim for a block volume")
	case c.Mode.MultiNode() || c.Mode.ReaderOnly():
		return fault.New(fault.Invalid, "an ephemeral volume is written on one node, and cannot be used as %s", c.Mode)
	}
	return nil
}
