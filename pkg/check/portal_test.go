package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/config"
)

func TestPortals(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	silent := context.DeadlineExceeded
	for _, r := range []struct {
		mode       string
		err        error
		nfs, iscsi Status
	}{
		{config.Controller, nil, OK, OK},
		{config.Controller, refused, Fail, OK},
		{config.Controller, silent, Fail, Fail},
		{config.Node, nil, OK, OK},
		{config.Node, refused, Fail, Warn},
		{config.Node, silent, Fail, Fail},
		{config.Node, syscall.EHOSTUNREACH, Fail, Fail},
	} {
		c := newWorld(t, nil, nil)
		c.cfg.Mode = r.mode
		if r.mode == config.Node {
			c.cfg.Pools, c.cfg.PortalHints = nil, []string{"192.0.2.10"}
		}
		c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a connect has no bound")
			}
			here, there := net.Pipe()
			return here, errors.Join(r.err, there.Close())
		}
		var list []Finding
		for _, l := range c.portalLooks() {
			list = append(list, collect(t, l.do)...)
		}
		want(t, named(t, list, "portal 192.0.2.10:2049"), r.nfs)
		want(t, named(t, list, "portal 192.0.2.10:3260"), r.iscsi)
	}
}

func TestEachPortalIsTriedOnce(t *testing.T) {
	c := newWorld(t, nil, nil)
	c.cfg.Pools = []config.Pool{
		{Name: "a", Parent: "a/csi", Addresses: []string{"192.0.2.10", "2001:db8::1"}, ISCSIPort: 3260},
		{Name: "b", Parent: "b/csi", Addresses: []string{"192.0.2.10"}, ISCSIPort: 3260},
	}
	var names []string
	for _, l := range c.portalLooks() {
		names = append(names, l.name)
	}
	want := "address 192.0.2.10, portal 192.0.2.10:2049, portal 192.0.2.10:3260, address 2001:db8::1, portal [2001:db8::1]:2049, portal [2001:db8::1]:3260"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("got %s", got)
	}
}

func TestNoPortalIsKnown(t *testing.T) {
	c := newWorld(t, nil, nil)
	c.cfg.Mode, c.cfg.Pools = config.Node, nil
	looks := c.portalLooks()
	if len(looks) != 1 {
		t.Fatalf("%d looks", len(looks))
	}
	want(t, named(t, collect(t, looks[0].do), "portal"), OK, "not tried")
}

func TestAddresses(t *testing.T) {
	c := newWorld(t, nil, nil)
	want(t, c.address("192.0.2.10"), OK)
	want(t, c.address("192.0.2.11"), Fail, "no interface")
	c.addresses = func() ([]netip.Addr, error) { return nil, errors.New("netlink") }
	want(t, c.address("192.0.2.10"), Fail, "netlink")
	have, err := interfaceAddresses()
	if err != nil || len(have) == 0 {
		t.Errorf("this host has the addresses %v, %v", have, err)
	}
}
