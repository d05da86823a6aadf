package fake

import (
	"path"
	"strings"
)

// Session is a login of an initiator.
type Session struct {
	fs  *FS
	acl *acl
}

// Disk is what a LUN shows to an initiator.
type Disk struct {
	// Device is the path of the block device behind it.
	Device   string
	Serial   string
	ReadOnly bool
}

// Try returns the disks, by LUN directory ("lun_1"), that an initiator would
// find if it logged in now, and false when it would be refused. An empty user
// stands for an initiator that offers no CHAP.
func (f *FS) Try(iqn, initiator, user, password string) (map[string]Disk, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.portalGroup(iqn)
	if g == nil || !g.enabled {
		return nil, false
	}
	a := g.acls[initiator]
	if a == nil {
		if *g.attrib["generate_node_acls"] != "1\n" {
			return nil, false
		}
		disks := map[string]Disk{}
		for name, n := range g.node.children["lun"].children {
			if l := n.item.(*lun); l.mapped != nil {
				disks[name] = l.mapped.disk(*g.attrib["demo_mode_write_protect"] == "1\n")
			}
		}
		return disks, *g.attrib["authentication"] == "0\n"
	}
	if !a.admits(user, password) {
		return nil, false
	}
	return a.disks(), true
}

// Login is Try that leaves a session behind, or returns nil.
func (f *FS) Login(iqn, initiator, user, password string) *Session {
	if _, ok := f.Try(iqn, initiator, user, password); !ok {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.portalGroup(iqn)
	if g == nil || g.acls[initiator] == nil {
		return nil
	}
	s := &Session{fs: f, acl: g.acls[initiator]}
	s.acl.session = s
	return s
}

// Alive reports whether the target still knows the session.
func (s *Session) Alive() bool {
	s.fs.mu.Lock()
	defer s.fs.mu.Unlock()
	return s.acl.session == s
}

// Disks returns what the session reaches now, by LUN directory.
func (s *Session) Disks() map[string]Disk {
	s.fs.mu.Lock()
	defer s.fs.mu.Unlock()
	if s.acl.session != s {
		return nil
	}
	return s.acl.disks()
}

func (f *FS) portalGroup(iqn string) *portalGroup {
	n, err := f.lookup(path.Join("target/iscsi", iqn, "tpgt_1"))
	if err != nil {
		return nil
	}
	return n.item.(*portalGroup)
}

// admits is what iscsi_target_nego.c and iscsi_target_auth.c do: where
// authentication is on, an ACL without both values lets nobody in.
func (a *acl) admits(user, password string) bool {
	on := *a.attrib["authentication"]
	if on == "-1\n" {
		on = *a.group.attrib["authentication"]
	}
	if on == "0\n" {
		return true
	}
	u, p := a.auth["userid"], a.auth["password"]
	return u.set && p.set && user == u.text && password == p.text
}

func (a *acl) disks() map[string]Disk {
	disks := map[string]Disk{}
	for name, e := range a.entries {
		disks[name] = e.lun.mapped.disk(e.readOnly)
	}
	return disks
}

func (b *backstore) disk(readOnly bool) Disk {
	return Disk{Device: b.device.Path, Serial: b.serial, ReadOnly: readOnly}
}

func (a *acl) info() string {
	if a.session == nil {
		return "No active iSCSI Session for Initiator Endpoint: " + a.initiator + "\n"
	}
	return strings.Join([]string{
		"InitiatorName: " + a.initiator,
		"InitiatorAlias: ",
		"LIO Session ID: 1   ISID: 0x00 02 3d 00 00 00  TSIH: 1  SessionType: Normal",
		"Session State: TARG_SESS_STATE_LOGGED_IN",
	}, "\n") + "\n"
}
