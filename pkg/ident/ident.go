// Package ident is the grammar of names: volume names and ids, node names and
// ids, iSCSI names. Everything that enters the driver as a name passes here
// once; what does not parse is never looked up and never joined to a path.
package ident

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"regexp"
	"strings"
	"unicode"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// The bounds that keep every id within the 128 bytes of csi.v0 and every
// dataset name within what ZFS and SCSI take.
const (
	MaxPoolName  = 30
	MaxComponent = 48
	MaxNodeName  = 63
	MaxNodeID    = 128
	MaxIQN       = 223 // ISCSI_NAME_LEN, RFC 3720 3.2.6.1
)

// hashDigits is how much of a SHA-256 a mapped name carries: 96 bits.
const hashDigits = 24

var (
	poolPattern      = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`)
	componentPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	mappedPattern    = regexp.MustCompile(`\.[0-9a-f]{24}$`)
	uuidPattern      = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// ValidPool reports whether s can be a pool's name in the configuration.
func ValidPool(s string) bool { return len(s) <= MaxPoolName && poolPattern.MatchString(s) }

// ValidUUID reports whether s is a volume's uuid: 32 lower-case hexadecimal digits.
func ValidUUID(s string) bool { return uuidPattern.MatchString(s) }

// Component maps the name that an orchestrator gave to one ZFS name component
// of at most MaxComponent bytes, the same at each replay. A name that is safe
// is used as it is; every other becomes a readable prefix and a hash of the
// whole. A name that looks like a mapped one is mapped itself, so two names
// never share a component.
func Component(name string) string {
	if len(name) <= MaxComponent && componentPattern.MatchString(name) && !mappedPattern.MatchString(name) {
		return name
	}
	return hashed(name, MaxComponent, func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	})
}

func hashed(name string, limit int, keep func(rune) bool) string {
	sum := sha256.Sum256([]byte(name))
	var prefix strings.Builder
	for _, r := range name {
		if prefix.Len() == limit-hashDigits-1 {
			break
		}
		if !keep(r) {
			r = '-'
		}
		prefix.WriteRune(r)
	}
	p := strings.Trim(prefix.String(), "-_")
	if p == "" {
		p = "x"
	}
	return p + "." + hex.EncodeToString(sum[:])[:hashDigits]
}

// VolumeID names a volume to orchestrators.
type VolumeID struct {
	Pool      string
	Component string
}

func (id VolumeID) String() string { return id.Pool + "/" + id.Component }

// ParseVolumeID reads an id. An empty one is fault.Invalid; one that could not
// be ours is fault.NotFound.
func ParseVolumeID(s string) (VolumeID, error) {
	if s == "" {
		return VolumeID{}, fault.New(fault.Invalid, "the volume id is empty")
	}
	pool, component, ok := strings.Cut(s, "/")
	if !ok || !ValidPool(pool) || !ValidComponent(component) {
		return VolumeID{}, fault.New(fault.NotFound, "volume %q does not exist: a volume id has the form POOL/NAME", Printable(s))
	}
	return VolumeID{Pool: pool, Component: component}, nil
}

// Printable shortens and escapes foreign text for a message.
func Printable(s string) string {
	const limit = 140
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= limit {
			b.WriteString("...")
			break
		}
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// NodeID names a node and says from which addresses it comes.
type NodeID struct {
	Name      string
	Addresses []netip.Addr
}

// subdomain is RFC 1123: labels of lower-case letters, digits and inner dashes.
var subdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// NodeName returns the form of a host's name that node ids carry. A name that
// is too long is hashed; one that is no RFC 1123 subdomain is fault.Invalid.
func NodeName(host string) (string, error) {
	name := strings.ToLower(host)
	if !subdomain.MatchString(name) || len(name) > 253 {
		return "", fault.New(fault.Invalid, "node name %q is no RFC 1123 subdomain (lower-case letters, digits, '-' and '.')", Printable(host))
	}
	if len(name) <= MaxNodeName {
		return name, nil
	}
	return hashed(name, MaxNodeName, func(r rune) bool { return r != '.' }), nil
}

func (n NodeID) String() string {
	parts := make([]string, len(n.Addresses))
	for i, a := range n.Addresses {
		parts[i] = a.String()
	}
	return n.Name + "@" + strings.Join(parts, ",")
}

// ParseNodeID reads what NodeID.String wrote. An empty one is fault.Invalid;
// anything else that is not a node's name and literal unicast addresses is an
// unknown node, fault.NotFound.
func ParseNodeID(s string) (NodeID, error) {
	if s == "" {
		return NodeID{}, fault.New(fault.Invalid, "the node id is empty")
	}
	id, why := parseNodeID(s)
	if why != "" {
		return NodeID{}, fault.New(fault.NotFound, "node %q is unknown: %s; a node id has the form NAME@ADDRESS[,ADDRESS]", Printable(s), why)
	}
	return id, nil
}

// parseNodeID returns the id, or why it is none.
func parseNodeID(s string) (NodeID, string) {
	if len(s) > MaxNodeID {
		return NodeID{}, "it is too long"
	}
	name, list, ok := strings.Cut(s, "@")
	if !ok {
		return NodeID{}, "it has no address"
	}
	if len(name) > MaxNodeName || !subdomain.MatchString(name) {
		return NodeID{}, "its name is no RFC 1123 subdomain"
	}
	id := NodeID{Name: name}
	for part := range strings.SplitSeq(list, ",") {
		a, err := ParseAddress(part)
		if err != nil {
			return NodeID{}, err.Error()
		}
		id.Addresses = append(id.Addresses, a)
	}
	return id, ""
}

// ParseAddress reads one literal unicast address. A zone, an IPv4 address in
// IPv6 form, a multicast, unspecified or link-local address is refused: none
// names one node everywhere.
func ParseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.String() != s {
		return netip.Addr{}, fault.New(fault.Invalid, "%q is not a literal IP address in its usual form", Printable(s))
	}
	if a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return netip.Addr{}, fault.New(fault.Invalid, "%q is not a global unicast address", Printable(s))
	}
	return a, nil
}
