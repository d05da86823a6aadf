// Package iscsi is the initiator's side of iSCSI volumes, over open-iscsi.
package iscsi

import (
	"context"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Config is what an operator can choose.
type Config struct {
	// ReplacementTimeout is how long I/O of a lost session is held before it
	// fails; zero means 120 s.
	ReplacementTimeout time.Duration
	// LoginTimeout bounds one login attempt at one portal; zero means 10 s.
	LoginTimeout time.Duration
}

// Attacher implements attach.Attacher.
type Attacher struct {
	run *run.Runner
	cfg Config
}

var _ attach.Attacher = (*Attacher)(nil)

// New returns an Attacher that starts its tools with r.
func New(r *run.Runner, cfg Config) *Attacher { return &Attacher{run: r, cfg: cfg} }

// Attach implements attach.Attacher.
func (a *Attacher) Attach(ctx context.Context, t attach.Target, c *chap.Credentials) (attach.Device, error) {
	return attach.Device{}, fault.New(fault.Unavailable, "not attached")
}

// Find implements attach.Attacher.
func (a *Attacher) Find(ctx context.Context, t attach.Target) (attach.Device, bool, error) {
	return attach.Device{}, false, nil
}

// Detach implements attach.Attacher.
func (a *Attacher) Detach(ctx context.Context, t attach.Target) error { return nil }

// Ready implements attach.Attacher.
func (a *Attacher) Ready(ctx context.Context) error { return nil }

// Rescan makes the kernel read the disk's size again.
func (a *Attacher) Rescan(ctx context.Context, t attach.Target) error { return nil }

// TargetOfDevice returns which target's disk a block device is, or lies on.
func (a *Attacher) TargetOfDevice(major, minor int) (iqn string, lun int, ok bool) {
	return "", 0, false
}
