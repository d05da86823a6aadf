//go:build guest

package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/test/machine"
)

// open-iscsi's own defaults wait two minutes for each of these.
func TestGuestLoginIsBounded(t *testing.T) {
	l := export(t, size, portal4).allow(guestInitiator, nil)
	blackhole(t, 3999)
	for name, c := range map[string]struct {
		iqn, portal string
		most        time.Duration
	}{
		"unknown target":      {l.iqn + "0", portal4, 60 * time.Second},
		"nobody listens":      {l.iqn, "127.0.0.1:3998", 60 * time.Second},
		"packets are lost":    {l.iqn, "127.0.0.1:3999", 60 * time.Second},
		"name does not exist": {l.iqn, "nas.invalid", 60 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := guestContext(t)
			target := l.target(c.portal)
			target.IQN = c.iqn
			a := guestAttacher(io.Discard)
			begin := time.Now()
			_, err := a.Attach(ctx, target, nil)
			took := time.Since(begin).Round(time.Millisecond)
			t.Logf("%s: %v", took, err)
			if fault.Kind(err) != fault.Unavailable || took > c.most {
				t.Errorf("after %s: %v", took, err)
			}
			other := l
			other.iqn = c.iqn
			other.nothingLeft(name)
		})
	}
}

// blackhole drops what is sent to a port of this machine.
func blackhole(t *testing.T, port int) {
	t.Helper()
	machine.Sh(t, "nft", "add", "table", "inet", "tarnblackhole")
	machine.Sh(t, "nft", "add", "chain", "inet", "tarnblackhole", "in", "{ type filter hook input priority 0 ; }")
	machine.Sh(t, "nft", "add", "rule", "inet", "tarnblackhole", "in", "tcp", "dport", fmt.Sprint(port), "drop")
	t.Cleanup(func() { machine.Sh(t, "nft", "delete", "table", "inet", "tarnblackhole") })
}

func TestGuestSecondPortalServes(t *testing.T) {
	l := export(t, size, portal4).allow(guestInitiator, nil)
	l.attachFor(guestAttacher(io.Discard), l.target("127.0.0.1:3998", portal4), nil)
}

func TestGuestTwoPortalsMakeOneSession(t *testing.T) {
	l := export(t, size, portal4, portal6).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	l.attachFor(a, l.target(portal4, portal6), nil)
	if s, err := a.sessions(l.iqn); err != nil || len(s) != 1 {
		t.Errorf("sessions: %+v, %v", s, err)
	}
}

// iscsiadm is killed at the deadline; iscsid goes on with the login.
func TestGuestCutLoginLeavesNoSession(t *testing.T) {
	l := export(t, size, portal4).allow(guestInitiator, nil)
	blackhole(t, 3999)
	a := guestAttacher(io.Discard)
	for _, c := range []struct {
		portal string
		after  time.Duration
	}{{"127.0.0.1:3999", 2 * time.Second}, {portal4, 500 * time.Millisecond}, {portal4, 2 * time.Second}} {
		ctx, cancel := context.WithTimeout(context.Background(), c.after)
		begin := time.Now()
		_, err := a.Attach(ctx, l.target(c.portal), nil)
		cancel()
		t.Logf("%s, deadline %s: returned after %s: %v", c.portal, c.after, time.Since(begin).Round(time.Millisecond), err)
		if err == nil {
			err = a.Detach(context.Background(), l.target(c.portal))
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Error(err)
		}
		l.nothingLeft("cut login")
	}
	// Nothing is opened behind our back either.
	time.Sleep(5 * time.Second)
	l.nothingLeft("some time after the cut login")
}
