package iscsi

import (
	"context"
	"errors"
	"os/exec"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Exit codes of iscsiadm, iscsiadm(8) and open-iscsi's include/iscsi_err.h.
const (
	exitSessionNotFound = 2
	exitConnection      = 4
	exitLogin           = 5
	exitTimeout         = 8
	exitLogout          = 10
	exitPDUTimeout      = 11
	exitNoTransport     = 12
	exitSessionExists   = 15
	exitFatalLogin      = 19
	exitNoDaemon        = 20
	exitNoObjects       = 21
	exitSysfsLookup     = 22
	exitAuthorization   = 24
)

// iscsiadm runs the tool. Its arguments hold no secret; secrets are masked in
// what it complains.
func (a *Attacher) iscsiadm(ctx context.Context, secrets []string, args ...string) error {
	_, err := a.run.Run(ctx, run.Cmd{Tool: "iscsiadm", Args: args, Secrets: secrets})
	return err
}

// failed gives a failure of iscsiadm its kind. what says what was tried.
func failed(err error, what string) error {
	if contextError(err) {
		return err
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fault.New(fault.Unavailable, "%s: iscsiadm is missing, install open-iscsi: %w", what, err)
	}
	switch run.ExitCode(err) {
	case exitNoDaemon:
		return fault.New(fault.Unavailable, "%s: iscsid is not running, start the service iscsid: %w", what, err)
	case exitAuthorization:
		return fault.New(fault.Precondition,
			"%s: the target refused this node: it is not published to this initiator name, or the CHAP credentials differ: %w", what, err)
	case exitFatalLogin:
		return fault.New(fault.Precondition,
			"%s: the login cannot succeed: the target did not prove that it knows the mutual CHAP password, or has been removed: %w", what, err)
	case exitLogin:
		return fault.New(fault.Unavailable, "%s: the portal has no such target, or closed the connection: %w", what, err)
	case exitConnection, exitTimeout, exitPDUTimeout, exitNoTransport:
		return fault.New(fault.Unavailable, "%s: no answer that allows a session: %w", what, err)
	}
	return fault.New(fault.Unavailable, "%s: %w", what, err)
}

// contextError reports that the caller's time ended an operation.
func contextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
