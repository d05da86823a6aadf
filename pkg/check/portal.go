package check

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/config"
)

// Ports of the servers.
const (
	nfsPort   = 2049
	iscsiPort = 3260
)

// portalLooks are for the addresses at which volumes are served: on the storage
// host they must be its own, on a node they must answer.
func (c *Checker) portalLooks() []look {
	type portal struct {
		address string
		iscsi   uint16
	}
	var portals []portal
	for _, p := range c.cfg.Pools {
		for _, a := range p.Addresses {
			portals = append(portals, portal{a, p.ISCSIPort})
		}
	}
	for _, a := range c.cfg.PortalHints {
		portals = append(portals, portal{a, iscsiPort})
	}
	var list []look
	seen := map[string]bool{}
	once := func(l look) {
		if !seen[l.name] {
			list = append(list, l)
		}
		seen[l.name] = true
	}
	for _, p := range portals {
		if c.cfg.Mode != config.Node {
			once(c.plain("address "+p.address, func() Finding { return c.address(p.address) }))
		}
		if c.cfg.Serves("nfs") {
			once(c.portal(p.address, nfsPort, "nfs"))
		}
		if c.cfg.Serves("iscsi") {
			once(c.portal(p.address, p.iscsi, "iscsi"))
		}
	}
	if len(list) == 0 {
		list = append(list, c.plain("portal", func() Finding {
			return ok("portal", "not tried, since no --address of the storage host is given")
		}))
	}
	return list
}

// address looks whether an address is this host's: the kernel binds no iSCSI
// portal to another one.
func (c *Checker) address(address string) Finding {
	what := "address " + address
	have, err := c.addresses()
	if err != nil {
		return fail(what, "see `ip address`", "this host's addresses cannot be read: %v", err)
	}
	want, err := netip.ParseAddr(address)
	if err != nil || !slices.Contains(have, want.WithZone("")) {
		return fail(what, "give it to an interface, or configure an address of this host", "no interface of this host has it")
	}
	return ok(what, "is this host's")
}

// portal tries to connect; nothing is sent.
func (c *Checker) portal(address string, port uint16, protocol string) look {
	to := net.JoinHostPort(address, strconv.Itoa(int(port)))
	what := "portal " + to
	return look{what, func(ctx context.Context, add func(...Finding)) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := c.dial(ctx, "tcp", to)
		if err == nil {
			err = conn.Close()
		}
		add(c.judgePortal(what, protocol, err))
	}}
}

func (c *Checker) judgePortal(what, protocol string, err error) Finding {
	switch {
	case err == nil:
		return ok(what, "answers")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fail(what, "see whether a firewall or the route between here and there is at fault", "cannot be reached: %v", err)
	case protocol == "nfs":
		return fail(what, "start nfs-server on the storage host", "nobody listens")
	case c.cfg.Mode == config.Node:
		return warn(what, "run tarn check on the storage host, if volumes are published over iSCSI", "reached, and nobody listens")
	}
	return ok(what, "nobody listens, as is so while no volume is published over iSCSI")
}

// interfaceAddresses are the addresses of this host.
func interfaceAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addresses = append(addresses, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return addresses, nil
}
