package iscsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// sessionTimeout bounds the wait for a session to vanish after its logout.
const sessionTimeout = 20 * time.Second

// Detach implements attach.Attacher. Only the target's IQN is needed: sessions
// are found in the kernel, with or without a record. It fails with
// fault.Precondition while a disk of the target is in use, since neither
// open-iscsi nor the kernel refuses to log out under a mounted filesystem.
func (a *Attacher) Detach(ctx context.Context, t attach.Target) error {
	if err := checkName("target", t.IQN); err != nil {
		return err
	}
	sessions, err := a.sessions(t.IQN)
	if err != nil {
		return err
	}
	if err := a.unused(ctx, sessions); err != nil {
		return err
	}
	for _, s := range sessions {
		if err := a.end(ctx, s); err != nil {
			return err
		}
	}
	if err := a.deleteRecords(ctx, t.IQN); err != nil {
		return err
	}
	left, err := a.sessions(t.IQN)
	if err == nil && len(left) > 0 {
		err = fault.New(fault.Unavailable, "there is a new session with %s after the logout", t.IQN)
	}
	return err
}

// end writes back what the node holds for a session whose disks nobody uses, and
// logs out.
func (a *Attacher) end(ctx context.Context, s session) error {
	if err := a.unmap(ctx, s); err != nil {
		return err
	}
	// On a session that is lost nothing can be written, and trying hangs.
	if s.state == loggedIn {
		if err := a.flush(ctx, s); err != nil {
			return err
		}
	}
	return a.logout(ctx, s)
}

// unmap flushes and removes the multipath maps over the session's disks.
func (a *Attacher) unmap(ctx context.Context, s session) error {
	disks, err := s.disks()
	if err != nil {
		return err
	}
	for _, d := range disks {
		m, ok, err := a.multipathOf(d.name)
		if err == nil && ok {
			err = a.flushMap(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flush writes back what the node still holds for the session's disks. The
// kernel itself flushes the disk's own cache when the logout removes it.
func (a *Attacher) flush(ctx context.Context, s session) error {
	disks, err := s.disks()
	if err != nil {
		return err
	}
	for _, d := range disks {
		_, err := a.run.Run(ctx, run.Cmd{Tool: "blockdev", Args: []string{"--flushbufs", filepath.Join(a.dev, d.name)}})
		if contextError(err) {
			return err
		}
		if err != nil {
			return fault.New(fault.Unavailable, "disk %s cannot be flushed: %w", d.name, err)
		}
	}
	return nil
}

// logout ends a session by its number, which needs no record, and waits until
// the kernel has removed it.
func (a *Attacher) logout(ctx context.Context, s session) error {
	err := a.iscsiadm(ctx, nil, "-m", "session", "-r", strconv.Itoa(s.id), "-u")
	switch run.ExitCode(err) {
	case 0, exitSessionNotFound, exitNoObjects, exitSysfsLookup:
		// Ended already, or said to be: the kernel is asked below.
	default:
		return failed(err, fmt.Sprintf("log out of session %d", s.id))
	}
	late := poll(ctx, sessionTimeout, func() (bool, error) {
		_, err := attribute(s.dir, "targetname")
		return err != nil, nil
	})
	if errors.Is(late, errLate) {
		return fault.New(fault.Unavailable, "session %d is still there %s after its logout", s.id, sessionTimeout)
	}
	return late
}
