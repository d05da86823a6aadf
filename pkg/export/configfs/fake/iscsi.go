package fake

import (
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// portalGroup is a target's tpgt_N.
type portalGroup struct {
	node    *node
	enabled bool
	attrib  map[string]*string
	acls    map[string]*acl
	portals map[netip.AddrPort]bool
}

// lun is a tpgt's lun_N.
type lun struct {
	group  *portalGroup
	mapped *backstore
}

// acl is one initiator's access, with what the kernel calls device entries:
// the LUNs that it really reaches.
type acl struct {
	group     *portalGroup
	initiator string
	auth      map[string]*authValue
	attrib    map[string]*string
	entries   map[string]*entry // by mapped LUN
	session   *Session
}

type authValue struct {
	text string
	set  bool
}

// entry is a struct se_dev_entry.
type entry struct {
	lun      *lun
	readOnly bool
}

const iqnMax = 223 // ISCSI_IQN_LEN less the terminating zero

func (f *FS) newFabric(target *node) *node {
	n := newGroup(target, "iscsi")
	n.constants(map[string]string{"lio_version": "Datera Inc. iSCSI Target v4.1.0\n"})
	n.group("discovery_auth")
	n.mkdir = func(name string) (*node, error) {
		if len(name) > iqnMax {
			return nil, syscall.EINVAL
		}
		return f.newTarget(n, name), nil
	}
	return n
}

func (f *FS) newTarget(fabric *node, name string) *node {
	n := newGroup(fabric, name)
	n.group("fabric_statistics")
	n.mkdir = func(name string) (*node, error) {
		number, ok := strings.CutPrefix(name, "tpgt_")
		if !ok {
			return nil, syscall.EINVAL
		}
		if unsigned(number, 16) != nil {
			return nil, syscall.EINVAL
		}
		return f.newPortalGroup(n, name), nil
	}
	return n
}

func (f *FS) newPortalGroup(target *node, name string) *node {
	n := newGroup(target, name)
	g := &portalGroup{node: n, acls: map[string]*acl{}, attrib: map[string]*string{}, portals: map[netip.AddrPort]bool{}}
	n.item = g
	n.attribute("enable", func() string { return boolText(g.enabled) }, func(s string) error {
		v, err := boolean(s)
		if err != nil {
			return err
		}
		if g.enabled = v == "1\n"; !g.enabled {
			g.dropSessions()
		}
		return nil
	})
	n.constants(map[string]string{"dynamic_sessions": ""})
	attrib := n.group("attrib")
	for name, value := range map[string]string{
		"authentication": "1\n", "generate_node_acls": "0\n", "demo_mode_discovery": "1\n",
		"demo_mode_write_protect": "1\n", "prod_mode_write_protect": "0\n", "cache_dynamic_acls": "0\n",
	} {
		g.attrib[name] = &value
		attrib.number(name, &value, zeroOrOne)
	}
	for _, name := range []string{"auth", "param"} {
		n.group(name)
	}
	luns := n.group("lun")
	luns.mkdir = func(name string) (*node, error) { return f.newLUN(g, luns, name) }
	portals := n.group("np")
	portals.mkdir = func(name string) (*node, error) { return f.newPortal(g, portals, name) }
	acls := n.group("acls")
	acls.mkdir = func(name string) (*node, error) { return f.newACL(g, acls, name) }
	n.drop = g.dropSessions
	return n
}

func (g *portalGroup) dropSessions() {
	for _, a := range g.acls {
		a.session = nil
	}
}

func lunNumber(name string) error {
	number, ok := strings.CutPrefix(name, "lun_")
	if !ok {
		return syscall.EINVAL
	}
	return unsigned(number, 64)
}

func (f *FS) newLUN(g *portalGroup, luns *node, name string) (*node, error) {
	if err := lunNumber(name); err != nil {
		return nil, err
	}
	n := newGroup(luns, name)
	l := &lun{group: g}
	n.item = l
	n.group("statistics")
	n.constants(map[string]string{"alua_tg_pt_offline": "0\n"})
	n.allow = func(target *node) error { // target_fabric_port_link
		b, ok := target.item.(*backstore)
		switch {
		case !ok:
			return syscall.EFAULT
		case b.device == nil:
			return syscall.ENODEV
		case l.mapped != nil:
			return syscall.EEXIST
		}
		l.mapped = b
		b.exports++
		return nil
	}
	n.unlinked = func(*node) { // target_fabric_port_unlink
		l.mapped.exports--
		l.mapped = nil
		for _, a := range g.acls {
			for name, e := range a.entries {
				if e.lun == l {
					delete(a.entries, name)
				}
			}
		}
	}
	return n, nil
}

// newPortal is lio_target_call_addnptotpg: ADDRESS:PORT with an IPv6 address in
// brackets. target_fabric_make_np makes EINVAL of whatever goes wrong. The kernel
// does not ask whether the host has the address (IP_FREEBIND), and targets share
// a listener.
func (f *FS) newPortal(g *portalGroup, portals *node, name string) (*node, error) {
	portal, err := netip.ParseAddrPort(name)
	if err != nil || g.portals[portal] || f.portals[portal] == 0 && f.occupied(portal) {
		return nil, syscall.EINVAL
	}
	f.portals[portal]++
	g.portals[portal] = true
	n := newGroup(portals, name)
	n.constants(map[string]string{"iser": "0\n", "cxgbit": "0\n"})
	n.drop = func() {
		f.portals[portal]--
		delete(g.portals, portal)
	}
	return n, nil
}

// occupied reports whether a listener excludes one at the portal. [::] takes
// the IPv4 addresses too.
func (f *FS) occupied(portal netip.AddrPort) bool {
	excludes := func(other netip.AddrPort) bool {
		a, b := portal.Addr().Unmap(), other.Addr().Unmap()
		any := func(a, b netip.Addr) bool { return a.IsUnspecified() && (a.Is6() || b.Is4()) }
		return portal.Port() == other.Port() && (a == b || any(a, b) || any(b, a))
	}
	for other := range f.listeners {
		if excludes(other) {
			return true
		}
	}
	for other, targets := range f.portals {
		if targets > 0 && excludes(other) {
			return true
		}
	}
	return false
}

func (f *FS) newACL(g *portalGroup, acls *node, name string) (*node, error) {
	n := newGroup(acls, name)
	a := &acl{group: g, initiator: name[:min(len(name), iqnMax)], auth: map[string]*authValue{}, entries: map[string]*entry{}, attrib: map[string]*string{}}
	n.item = a
	n.attribute("info", a.info, nil)
	n.attribute("tag", func() string { return "" }, func(string) error { return nil })
	inherited := "-1\n"
	a.attrib["authentication"] = &inherited
	n.group("attrib").number("authentication", &inherited, func(s string) (string, error) {
		v, err := strconv.ParseInt(s, 0, 32)
		if err != nil || v < -1 || v > 1 {
			return "", syscall.EINVAL
		}
		return strconv.FormatInt(v, 10) + "\n", nil
	})
	auth := n.group("auth")
	for _, name := range []string{"userid", "password", "userid_mutual", "password_mutual"} {
		v := &authValue{}
		a.auth[name] = v
		auth.attribute(name, func() string { return v.text + "\n" }, v.store)
	}
	auth.attribute("authenticate_target", func() string {
		return boolText(a.auth["userid_mutual"].set && a.auth["password_mutual"].set)
	}, nil)
	n.group("param")
	n.group("fabric_statistics")
	n.mkdir = func(name string) (*node, error) { return f.newMappedLUN(a, n, name) }
	n.drop = func() {
		a.session = nil
		delete(g.acls, a.initiator)
	}
	g.acls[a.initiator] = a
	return n, nil
}

// store is __iscsi_nacl_auth_X_store. The value is kept as it is, and one that
// begins with NULL counts as not set.
func (v *authValue) store(value string) error {
	if len(value) >= 256 { // MAX_USER_LEN, MAX_PASS_LEN
		return syscall.EINVAL
	}
	v.text, v.set = value, !strings.HasPrefix(value, "NULL")
	return nil
}

// newMappedLUN is an ACL's lun_N. The kernel keeps the device entry apart from
// the link: it goes when the backstore leaves the LUN, and does not come back.
func (f *FS) newMappedLUN(a *acl, aclNode *node, name string) (*node, error) {
	if err := lunNumber(name); err != nil {
		return nil, err
	}
	n := newGroup(aclNode, name)
	n.group("statistics")
	n.attribute("write_protect", func() string {
		e := a.entries[name]
		if e == nil {
			return ""
		}
		return boolText(e.readOnly)
	}, func(s string) error {
		v, err := zeroOrOne(s)
		if err != nil {
			return err
		}
		if e := a.entries[name]; e != nil {
			e.readOnly = v == "1\n"
		}
		return nil
	})
	n.allow = func(target *node) error { // target_fabric_mappedlun_link
		l, ok := target.item.(*lun)
		switch {
		case !ok:
			return syscall.EFAULT
		case l.mapped == nil, l.group != a.group:
			return syscall.EINVAL
		}
		a.entries[name] = &entry{lun: l, readOnly: *a.group.attrib["prod_mode_write_protect"] == "1\n"}
		return nil
	}
	n.unlinked = func(*node) { delete(a.entries, name) }
	return n, nil
}
