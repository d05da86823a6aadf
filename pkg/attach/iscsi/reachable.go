package iscsi

import (
	"context"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// running is the state of a SCSI disk that takes commands (kernel,
// drivers/scsi/scsi_sysfs.c). A "blocked" one holds them back while its session
// is lost; "transport-offline" and "offline" ones fail them.
const running = "running"

// Reachable implements attach.Attacher from the states of the session and of its
// disk.
func (a *Attacher) Reachable(_ context.Context, t attach.Target) error {
	if err := checkName("target", t.IQN); err != nil {
		return err
	}
	sessions, err := a.sessions(t.IQN)
	if err != nil {
		return err
	}
	last := fault.New(fault.Precondition, "there is no session with %s", t.IQN)
	for _, s := range sessions {
		if s.state != loggedIn {
			last = fault.New(fault.Unavailable, "the session with %s is lost (%s)", t.IQN, s.state)
			continue
		}
		d, ok, err := s.disk(t.LUN)
		if err != nil {
			return err
		}
		if !ok {
			last = fault.New(fault.Unavailable, "the session with %s has no disk at LUN %d", t.IQN, t.LUN)
			continue
		}
		state, err := attribute(d.scsi, "state")
		if err != nil {
			last = fault.New(fault.Unavailable, "disk %s of %s vanished: %w", d.name, t.IQN, err)
			continue
		}
		if state == running {
			return nil
		}
		last = fault.New(fault.Unavailable, "disk %s of %s takes no commands (%s)", d.name, t.IQN, state)
	}
	return last
}
