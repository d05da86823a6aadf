// Package publish is the publish context: what the controller tells a node
// about a volume that it has opened to it, as the flat map of strings that
// orchestrators carry from one to the other. It decides nothing; it is the one
// place where the keys are written and read, and where what comes in is
// checked before any part of it reaches a tool.
package publish

import (
	"path"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// The protocols.
const (
	NFS   = "nfs"
	ISCSI = "iscsi"
)

// The keys of a publish context.
const (
	KeyProtocol  = "protocol"
	KeyReadOnly  = "readonly"
	KeyMode      = "mode"
	KeyServer    = "server"
	KeyShare     = "share"
	KeyIQN       = "iqn"
	KeyPortals   = "portals"
	KeyLUN       = "lun"
	KeySerial    = "serial"
	KeyInitiator = "initiator"
	KeyCHAP      = "chap"
)

// maxLUN is the highest number of the flat addressing method (SAM-5, 4.7.7.3).
const maxLUN = 1<<14 - 1

// maxPortals bounds how long a node tries one portal after the other.
const maxPortals = 16

// Context is a publish context.
type Context struct {
	// Protocol is NFS or ISCSI.
	Protocol string
	// ReadOnly says that the controller granted no write.
	ReadOnly bool
	// Mode is the access mode of the publication. It is unset in a context
	// that an earlier version made.
	Mode access.Mode

	// Server is a literal IP address, IPv6 without brackets, or a host name;
	// Share the absolute path of the export. Only for NFS.
	Server, Share string

	// IQN, Portals and LUN name the disk; Portals are HOST:PORT, IPv6 in
	// brackets, in the order in which they are tried. Serial is the volume's
	// uuid, and what the disk must say of itself. Only for iSCSI, like all below.
	IQN     string
	Portals []string
	LUN     int
	Serial  string
	// Initiator is the name to which the target was opened. The node derives
	// its own and compares.
	Initiator string
	// CHAP says where the node finds its credentials.
	CHAP chap.Mode
}

// Map returns the flat form. Parse reads it back.
func (c Context) Map() map[string]string {
	m := map[string]string{KeyProtocol: c.Protocol}
	if c.ReadOnly {
		m[KeyReadOnly] = "true"
	}
	if c.Mode.Known() {
		m[KeyMode] = c.Mode.String()
	}
	switch c.Protocol {
	case NFS:
		m[KeyServer] = c.Server
		m[KeyShare] = c.Share
	case ISCSI:
		m[KeyIQN] = c.IQN
		m[KeyPortals] = strings.Join(c.Portals, ",")
		m[KeyLUN] = strconv.Itoa(c.LUN)
		m[KeySerial] = c.Serial
		m[KeyInitiator] = c.Initiator
		m[KeyCHAP] = string(c.CHAP)
	}
	return m
}

// Parse reads a publish context. Keys that are not of this package are
// ignored. A key that is missing or holds what the controller cannot have
// written is fault.Invalid, naming the key.
func Parse(m map[string]string) (Context, error) {
	if len(m) == 0 {
		return Context{}, fault.New(fault.Invalid,
			"the publish context is missing: pass on what ControllerPublishVolume returned")
	}
	p := parser{m: m}
	c := Context{Protocol: p.need(KeyProtocol, func(s string) bool { return s == NFS || s == ISCSI })}
	if s, ok := m[KeyReadOnly]; ok {
		p.check(KeyReadOnly, s, s == "true" || s == "false")
		c.ReadOnly = s == "true"
	}
	if s, ok := m[KeyMode]; ok {
		c.Mode, ok = access.ParseMode(s)
		p.check(KeyMode, s, ok)
	}
	switch c.Protocol {
	case NFS:
		c.Server = p.need(KeyServer, validHost)
		c.Share = p.need(KeyShare, validShare)
	case ISCSI:
		c.IQN = p.need(KeyIQN, validIQN)
		c.Portals = strings.Split(p.need(KeyPortals, validPortals), ",")
		c.LUN, _ = strconv.Atoi(p.need(KeyLUN, validLUN))
		c.Serial = p.need(KeySerial, ident.ValidUUID)
		c.Initiator = p.need(KeyInitiator, validIQN)
		c.CHAP = chap.Mode(p.need(KeyCHAP, func(s string) bool { return chap.Mode(s).Valid() }))
	}
	if p.err != nil {
		return Context{}, p.err
	}
	return c, nil
}

// parser keeps the first error.
type parser struct {
	m   map[string]string
	err error
}

func (p *parser) need(key string, valid func(string) bool) string {
	v, ok := p.m[key]
	if !ok {
		p.fail("the publish context lacks %q: pass on what ControllerPublishVolume returned", key)
		return ""
	}
	p.check(key, v, valid(v))
	return v
}

func (p *parser) check(key, value string, ok bool) {
	if !ok {
		p.fail("the publish context's %q is %q, which ControllerPublishVolume never returns", key, ident.Printable(value))
	}
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fault.New(fault.Invalid, format, args...)
	}
}

// validShare keeps out what mount.nfs, fstab syntax or a mount option list
// would take for something else.
func validShare(s string) bool {
	return len(s) < 4096 && path.IsAbs(s) && path.Clean(s) == s && s != "/" &&
		!strings.ContainsFunc(s, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`,"'\#:`, r)
		})
}

// validLUN takes one form of each number. LUN 0 is never ours: a LUN 0 that is
// taken away under a session reads as zeros, like a blank disk.
func validLUN(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 1 && n <= maxLUN && strconv.Itoa(n) == s
}
