package iscsi

import (
	"cmp"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// state is what the kernel has of one volume. What is missing is empty.
type state struct {
	exists      bool // the target
	group       bool // tpgt_1
	otherGroups []string
	enabled     bool
	attrib      map[string]string
	luns        []lunState
	portals     []portalState
	acls        []aclState
	backstore   backstoreState
}

// lunState is a LUN of the portal group.
type lunState struct {
	name string
	// target is the backstore that it maps, or empty.
	target string
}

// portalState is one np directory. Its name may be another spelling of the
// address, or none.
type portalState struct {
	name   string
	portal netip.AddrPort
}

// inherited is an ACL's authentication when it follows the portal group's.
const inherited = "-1"

// aclState is one initiator's access. Two are the same access when they are
// equal.
type aclState struct {
	initiator string
	chap      chap.Credentials
	// authentication is the ACL's own switch (since Linux 6.0).
	authentication string
	// target is the LUN that the ACL's LUN links to, or empty.
	target string
	// protect is write_protect: "1", "0", or empty when the LUN is not mapped.
	// The link alone is no proof: it stays when the backstore leaves the LUN,
	// and the mapping does not come back with it.
	protect string
	// extra is what else was found in it.
	extra string
}

// String leaves the credentials out.
func (a aclState) String() string { return a.initiator }

// backstoreState is the volume's iblock device.
type backstoreState struct {
	exists, enabled bool
	major, minor    uint32
	serial          string
	udevPath        string
	emulateTPU      string
}

// groupAttributes are those that Ensure sets, apart from authentication.
// prod_mode_write_protect decides how a LUN begins that is mapped into an ACL,
// and is 0 except while a read-only one is.
var groupAttributes = []struct{ name, value string }{
	{"generate_node_acls", "0"},
	{"demo_mode_discovery", "0"},
	{protectAttribute, "0"},
}

const protectAttribute = "prod_mode_write_protect"

func (t tree) state(n names) (state, error) {
	var s state
	var err error
	if s.backstore, err = t.backstoreState(n); err != nil {
		return s, err
	}
	var groups []configfs.Entry
	if groups, s.exists, err = t.entries(n.target, configfs.Directory, "tpgt_"); err != nil {
		return s, err
	}
	for _, g := range groups {
		if g.Name == path.Base(n.tpg) {
			s.group = true
		} else {
			s.otherGroups = append(s.otherGroups, g.Name)
		}
	}
	if !s.group {
		return s, nil
	}
	err = t.groupState(n, &s)
	return s, err
}

func (t tree) groupState(n names, s *state) error {
	enabled, err := t.read(path.Join(n.tpg, "enable"))
	if err != nil {
		return err
	}
	s.enabled = enabled == "1"
	s.attrib = map[string]string{}
	for _, a := range groupAttributes {
		if s.attrib[a.name], err = t.read(path.Join(n.tpg, "attrib", a.name)); err != nil {
			return err
		}
	}
	if s.attrib["authentication"], err = t.read(path.Join(n.tpg, "attrib/authentication")); err != nil {
		return err
	}
	luns, err := t.list(path.Join(n.tpg, "lun"), configfs.Directory, "lun_")
	if err != nil {
		return err
	}
	for _, l := range luns {
		target, err := t.linkTarget(path.Join(n.tpg, "lun", l.Name))
		if err != nil {
			return err
		}
		s.luns = append(s.luns, lunState{name: l.Name, target: target})
	}
	portals, err := t.list(path.Join(n.tpg, "np"), configfs.Directory, "")
	if err != nil {
		return err
	}
	for _, p := range portals {
		portal, _ := netip.ParseAddrPort(p.Name)
		s.portals = append(s.portals, portalState{name: p.Name, portal: portal})
	}
	acls, err := t.list(path.Join(n.tpg, "acls"), configfs.Directory, "")
	if err != nil {
		return err
	}
	for _, a := range acls {
		acl, err := t.aclState(n, a.Name)
		if err != nil {
			return err
		}
		s.acls = append(s.acls, acl)
	}
	return nil
}

// linkTarget returns what the link in dir names, or "" when there is none. The
// kernel lets a LUN have one.
func (t tree) linkTarget(dir string) (string, error) {
	links, err := t.list(dir, configfs.Link, "")
	if err != nil || len(links) == 0 {
		return "", err
	}
	return links[0].Target, nil
}

func (t tree) aclState(n names, initiator string) (aclState, error) {
	a := aclState{initiator: initiator}
	dir := n.acl(initiator)
	for _, f := range []struct {
		file string
		to   *string
	}{
		{"auth/userid", &a.chap.User},
		{"auth/password", &a.chap.Password},
		{"auth/userid_mutual", &a.chap.MutualUser},
		{"auth/password_mutual", &a.chap.MutualPassword},
		{"attrib/authentication", &a.authentication},
		{lunDir + "/write_protect", &a.protect},
	} {
		var err error
		if *f.to, err = t.read(path.Join(dir, f.file)); err != nil {
			return a, err
		}
	}
	a.authentication = cmp.Or(a.authentication, inherited)
	luns, err := t.list(dir, configfs.Directory, "lun_")
	if err != nil {
		return a, err
	}
	for _, l := range luns {
		if l.Name != lunDir {
			a.extra = l.Name
		}
	}
	a.target, err = t.linkTarget(path.Join(dir, lunDir))
	return a, err
}

// deviceNumber is the line that iblock_show_configfs_dev_params writes about
// the device it has open (drivers/target/target_core_iblock.c). udev_path is no
// proof of which that is: it can be written at any time.
var deviceNumber = regexp.MustCompile(`(?m)^\s*Major: ([0-9]+) Minor: ([0-9]+)`)

// serialLabel precedes the serial in wwn/vpd_unit_serial.
const serialLabel = "T10 VPD Unit Serial Number: "

func (t tree) backstoreState(n names) (backstoreState, error) {
	var b backstoreState
	enable, err := t.read(path.Join(n.backstore, "enable")) // 0 or 1, if there is one
	if b.exists, b.enabled = enable != "", enable == "1"; err != nil || !b.exists {
		return b, err
	}
	var info string
	for _, f := range []struct {
		file string
		to   *string
	}{
		{"info", &info},
		{"udev_path", &b.udevPath},
		{"wwn/vpd_unit_serial", &b.serial},
		{"attrib/emulate_tpu", &b.emulateTPU},
	} {
		if *f.to, err = t.read(path.Join(n.backstore, f.file)); err != nil {
			return b, err
		}
	}
	b.serial = strings.TrimPrefix(b.serial, serialLabel)
	if m := deviceNumber.FindStringSubmatch(info); m != nil && b.enabled {
		major, _ := strconv.ParseUint(m[1], 10, 32)
		minor, _ := strconv.ParseUint(m[2], 10, 32)
		b.major, b.minor = uint32(major), uint32(minor)
	}
	return b, nil
}

// serves reports whether the backstore is enabled on the device and carries
// the volume's serial.
func (b backstoreState) serves(w wanted) bool {
	return b.enabled && b.serial == w.uuid && b.major == w.device.Major && b.minor == w.device.Minor
}

// lun returns what our LUN maps, or "".
func (s state) lun() string {
	for _, l := range s.luns {
		if l.name == lunDir {
			return l.target
		}
	}
	return ""
}
