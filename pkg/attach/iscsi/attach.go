package iscsi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// loginRetries is how often iscsid tries a first login again before it gives
// up. The orchestrator repeats a call anyway, and without a retry a portal where
// nobody listens, or a target that is not there, is known within a second
// instead of after the login time-out.
const loginRetries = 0

// loginTries is how often a login is tried that fails without a reason: a target
// that refuses closes the connection, and iscsid may see that before it has read
// the refusal. Each takes a second at most.
const loginTries = 3

// undoGrace is how long taking back a failed attach may take, beyond what
// iscsid still needs to give up a login that nobody waits for any more.
const undoGrace = 20 * time.Second

// errLoginCut is a login that was not waited for to its end.
var errLoginCut = errors.New("cut off")

// Attach implements attach.Attacher. The portals are tried in order until one
// lets this node in: one session, whatever the number of portals.
func (a *Attacher) Attach(ctx context.Context, t attach.Target, c *chap.Credentials) (attach.Device, error) {
	portals, err := checkTarget(t)
	if err != nil {
		return attach.Device{}, err
	}
	sessions, err := a.sessions(t.IQN)
	if err != nil {
		return attach.Device{}, err
	}
	for _, s := range sessions {
		if usable(s, t) {
			return a.device(ctx, t, s, true)
		}
	}
	if len(sessions) > 0 {
		if err := a.replaceable(ctx, sessions); err != nil {
			return attach.Device{}, err
		}
	}
	d, err := a.begin(ctx, t, portals, c)
	if err != nil {
		return attach.Device{}, errors.Join(err, a.takeBack(ctx, t.IQN, errors.Is(err, errLoginCut)))
	}
	return d, nil
}

// usable reports whether a session carries I/O and was made by this instance.
func usable(s session, t attach.Target) bool {
	return s.state == loggedIn && (s.initiator == "" || s.initiator == t.Initiator)
}

// replaceable ends sessions that are not usable: they wait for a portal that
// is gone, perhaps for ever. When a disk of theirs is in use they are left to
// recover.
func (a *Attacher) replaceable(ctx context.Context, sessions []session) error {
	if err := a.unused(ctx, sessions); err != nil {
		return fault.New(fault.Unavailable, "the session is lost and cannot be replaced, wait for the target to answer: %w", err)
	}
	for _, s := range sessions {
		if err := a.unmap(ctx, s); err != nil {
			return err
		}
		if err := a.logout(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// begin logs in and finds the disk.
func (a *Attacher) begin(ctx context.Context, t attach.Target, portals []portal, c *chap.Credentials) (attach.Device, error) {
	if err := a.login(ctx, t, portals, c); err != nil {
		return attach.Device{}, err
	}
	sessions, err := a.sessions(t.IQN)
	if err != nil {
		return attach.Device{}, err
	}
	if len(sessions) == 0 {
		return attach.Device{}, fault.New(fault.Unavailable, "the login to %s returned success, but there is no session", t.IQN)
	}
	return a.device(ctx, t, sessions[0], false)
}

// login tries the portals in order.
func (a *Attacher) login(ctx context.Context, t attach.Target, portals []portal, c *chap.Credentials) error {
	iface := interfaceName(t.Initiator)
	if err := a.ensureInterface(ctx, t.Initiator); err != nil {
		return err
	}
	// Records of an earlier attach may name portals that have moved.
	if err := a.deleteRecords(ctx, t.IQN); err != nil {
		return err
	}
	var failures []error
	for _, p := range portals {
		err := a.makeRecord(ctx, t.IQN, p, iface, c)
		if err == nil {
			err = a.loginAt(ctx, t.IQN, p, iface, c)
		}
		if err == nil {
			return nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
		if err := a.deleteRecords(ctx, t.IQN); err != nil {
			failures = append(failures, err)
			break
		}
	}
	return worst(failures)
}

// worst returns one error for the failures at several portals. The deadline
// comes first, then a refusal, which says more than a portal that is silent.
func worst(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	rank := func(err error) int {
		switch {
		case contextError(err):
			return 0
		case errors.Is(err, fault.Precondition):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(failures, func(x, y error) int { return rank(x) - rank(y) })
	texts := make([]string, len(failures))
	for i, f := range failures {
		texts[i] = f.Error()
	}
	if kind := fault.Kind(failures[0]); kind != nil {
		return fault.New(kind, "%s", strings.Join(texts, "; "))
	}
	return fmt.Errorf("%w; %s", failures[0], strings.Join(texts[1:], "; "))
}

func (a *Attacher) loginAt(ctx context.Context, iqn string, p portal, iface string, c *chap.Credentials) error {
	var secrets []string
	if c != nil {
		secrets = []string{c.Password, c.MutualPassword}
	}
	var err error
	for range loginTries {
		err = a.iscsiadm(ctx, secrets, "-m", "node", "-T", iqn, "-p", p.String(), "-I", iface, "--login")
		if run.ExitCode(err) != exitLogin {
			break
		}
	}
	if err == nil || run.ExitCode(err) == exitSessionExists {
		return nil
	}
	what := fmt.Sprintf("log in to %s at %s", iqn, p)
	if contextError(err) {
		return fmt.Errorf("%s: %w: %w", what, errLoginCut, err)
	}
	return failed(err, what)
}

// takeBack removes what a failed attach began, under a time of its own: the
// caller's may be over. pending is a login whose iscsiadm was killed while
// iscsid goes on with it: a session that it opens is closed as soon as that is
// possible, until iscsid must have given up.
func (a *Attacher) takeBack(ctx context.Context, iqn string, pending bool) error {
	patience := time.Duration(0)
	if pending {
		patience = (loginRetries + 1) * a.cfg.LoginTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience+undoGrace)
	defer cancel()

	var last error
	err := poll(ctx, patience, func() (bool, error) {
		var sessions []session
		if sessions, last = a.sessions(iqn); last != nil {
			return !pending, nil //nolint:nilerr // last is what the poll is for, and is returned after it
		}
		for _, s := range sessions {
			// iscsid refuses this while the first login of the session goes on.
			last = errors.Join(last, a.unmap(ctx, s), a.logout(ctx, s))
		}
		return !pending || (len(sessions) > 0 && last == nil), nil
	})
	if errors.Is(err, errLate) {
		err = nil
	}
	// The records last: iscsiadm keeps those of a session that exists.
	if err = errors.Join(last, err, a.deleteRecords(ctx, iqn)); err != nil {
		return fmt.Errorf("and the attach of %s could not be taken back: %w", iqn, err)
	}
	return nil
}
