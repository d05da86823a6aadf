package iscsi

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// The kernel's limits for what is written as it is.
const (
	maxUDEVPath = 511 // SE_UDEV_PATH_LEN is 512, include/target/target_core_base.h
	maxCHAP     = 255 // MAX_USER_LEN, MAX_PASS_LEN are 256, iscsi_target_auth.h
)

// wanted is an export.Volume in the kernel's terms.
type wanted struct {
	names
	source    string
	sizeBytes int64
	device    Device
	portals   []netip.AddrPort
	acls      []aclState
	// authentication is the portal group's, "1" when any grant has CHAP: then
	// a grant without it is refused by the kernel.
	authentication string
}

// wanted checks v, before anything is touched. What cannot be served is
// fault.Invalid.
func (e *Exporter) wanted(v export.Volume) (wanted, error) {
	w := wanted{source: v.Source, sizeBytes: v.SizeBytes, authentication: "0"}
	if !ident.ValidUUID(v.UUID) {
		return w, fault.New(fault.Invalid, "%q is no volume's uuid", ident.Printable(v.UUID))
	}
	w.names = e.names(v.UUID)
	if len(w.iqn) > ident.MaxIQN {
		return w, fault.New(fault.Invalid, "target name %s has more than %d bytes", w.iqn, ident.MaxIQN)
	}
	// The kernel splits what is written to control at commas.
	if !strings.HasPrefix(v.Source, "/dev/") || path.Clean(v.Source) != v.Source ||
		len(v.Source) > maxUDEVPath || strings.ContainsFunc(v.Source, func(r rune) bool { return r == ',' || r < ' ' }) {
		return w, fault.New(fault.Invalid, "%q is no path of a block device that can be exported", ident.Printable(v.Source))
	}
	if v.SizeBytes <= 0 {
		return w, fault.New(fault.Invalid, "a device of %d bytes cannot be exported", v.SizeBytes)
	}
	if err := w.setPortals(v.Portals); err != nil {
		return w, err
	}
	for _, g := range v.SortedGrants() {
		if err := w.addGrant(g); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *wanted) setPortals(portals []netip.AddrPort) error {
	if len(portals) == 0 {
		return fault.New(fault.Invalid, "no portal is configured")
	}
	for _, p := range portals {
		if !p.IsValid() || p.Port() == 0 || p.Addr().Zone() != "" {
			return fault.New(fault.Invalid, "portal %s is not an address and a port", p)
		}
		w.portals = append(w.portals, netip.AddrPortFrom(p.Addr().Unmap(), p.Port()))
	}
	slices.SortFunc(w.portals, netip.AddrPort.Compare)
	w.portals = slices.Compact(w.portals)
	return nil
}

func (w *wanted) addGrant(g export.Grant) error {
	initiator := strings.ToLower(g.Initiator) // the kernel compares bytes
	if !validInitiator(initiator) {
		return fault.New(fault.Invalid, "node %s has no usable initiator name: %q", ident.Printable(g.Node), ident.Printable(g.Initiator))
	}
	if slices.ContainsFunc(w.acls, func(a aclState) bool { return a.initiator == initiator }) {
		return fault.New(fault.Invalid, "initiator name %s is that of two nodes", initiator)
	}
	a := aclState{initiator: initiator, target: w.lun, protect: "0", authentication: inherited}
	if g.ReadOnly {
		a.protect = "1"
	}
	if g.CHAP != nil {
		if err := checkCHAP(*g.CHAP); err != nil {
			return err
		}
		w.authentication = "1"
		a.chap = *g.CHAP
	}
	w.acls = append(w.acls, a)
	return nil
}

// validInitiator keeps a name within one path element of what iSCSI allows.
func validInitiator(s string) bool {
	if len(s) > ident.MaxIQN || !slices.ContainsFunc([]string{"iqn.", "eui.", "naa."}, func(p string) bool { return strings.HasPrefix(s, p) }) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-.:_", r)
	})
}

// checkCHAP refuses credentials with which the kernel would let nobody in. The
// texts hold no value.
func checkCHAP(c chap.Credentials) error {
	if c.User == "" || c.Password == "" || (c.MutualUser == "") != (c.MutualPassword == "") {
		return fault.New(fault.Invalid, "CHAP credentials need both a user and a password")
	}
	for _, v := range []string{c.User, c.Password, c.MutualUser, c.MutualPassword} {
		if len(v) > maxCHAP || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fault.New(fault.Invalid, "CHAP user and password may have %d bytes and no control characters", maxCHAP)
		}
		// DEF_NACL_AUTH_STR in drivers/target/iscsi/iscsi_target_configfs.c.
		if strings.HasPrefix(v, "NULL") {
			return fault.New(fault.Invalid, "CHAP user and password must not begin with NULL: the kernel takes that as not set")
		}
	}
	return nil
}
