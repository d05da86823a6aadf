package check

import (
	"time"

	"golang.org/x/sys/unix"
)

// clockState is what the kernel says of its clock.
type clockState struct {
	now          time.Time
	synchronized bool
}

// Nobody who uses this program lives before it; a clock that is, was never set.
var earliest = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// kernelClock asks the kernel, with no mode set: that changes nothing
// (adjtimex(2)).
func kernelClock() (clockState, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return clockState{now: time.Now(), synchronized: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0}, err
}

// checkClock: the times of snapshots are this clock's, and NFS compares the
// server's with its own files'.
func (c *Checker) checkClock() Finding {
	s, err := c.clock()
	const sync = "start a time service: systemctl start systemd-timesyncd, or chrony"
	switch {
	case err != nil:
		return fail("clock", sync, "cannot be read: %v", err)
	case s.now.Before(earliest):
		return fail("clock", sync, "was never set, it shows %s", s.now.UTC().Format(time.RFC3339))
	case !s.synchronized:
		return warn("clock", sync, "%s, and no time service keeps it right", s.now.UTC().Format(time.RFC3339))
	}
	return ok("clock", "%s, synchronized", s.now.UTC().Format(time.RFC3339))
}
