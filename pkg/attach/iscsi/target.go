package iscsi

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// defaultPort is the port of a portal that names none, RFC 7143 12.8.
const defaultPort = 3260

// maxLUN is the largest LUN of the flat addressing method, SAM-5 4.7.
const maxLUN = 16383

var (
	// iscsiName is what may become a directory of open-iscsi's database and an
	// operand of iscsiadm. Names are lower case (RFC 3722) and the kernel
	// compares bytes.
	iscsiName = regexp.MustCompile(`^(iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9]|eui\.[0-9a-f]|naa\.[0-9a-f])[a-z0-9.:_-]*$`)
	// hostname is RFC 1123: a label never begins with a dash, so it is no option.
	hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

// portal is an address that a target answers at.
type portal struct {
	host string // without brackets
	port int
}

// String is the form that iscsiadm takes.
func (p portal) String() string {
	if strings.Contains(p.host, ":") {
		return "[" + p.host + "]:" + strconv.Itoa(p.port)
	}
	return p.host + ":" + strconv.Itoa(p.port)
}

// parsePortal reads HOST, HOST:PORT, [IPV6]:PORT, [IPV6] and IPV6.
func parsePortal(s string) (portal, error) {
	host, port := s, ""
	if inner, ok := strings.CutPrefix(s, "["); ok {
		var rest string
		host, rest, ok = strings.Cut(inner, "]")
		port = strings.TrimPrefix(rest, ":")
		if !ok || !strings.Contains(host, ":") || (rest != "" && (rest == port || port == "")) {
			return portal{}, badPortal(s)
		}
	} else if strings.Count(s, ":") == 1 {
		host, port, _ = strings.Cut(s, ":")
		if port == "" {
			return portal{}, badPortal(s)
		}
	}
	p := portal{host: host, port: defaultPort}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '+' {
			return portal{}, badPortal(s)
		}
		p.port = int(n)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return portal{}, badPortal(s)
		}
		return p, nil
	}
	if len(host) > 253 || !hostname.MatchString(host) {
		return portal{}, badPortal(s)
	}
	return p, nil
}

func badPortal(s string) error {
	return fault.New(fault.Invalid, "portal %q has not the form HOST, HOST:PORT, [IPV6]:PORT or IPV6", ident.Printable(s))
}

// checkName refuses what is no iSCSI name in the form that Tarn uses.
func checkName(what, name string) error {
	if len(name) > ident.MaxIQN || !iscsiName.MatchString(name) {
		return fault.New(fault.Invalid, "%s %q is no iSCSI name in lower case", what, ident.Printable(name))
	}
	return nil
}

// checkTarget validates all that an attach needs, and returns the portals in
// the order given.
func checkTarget(t attach.Target) ([]portal, error) {
	if err := checkName("target", t.IQN); err != nil {
		return nil, err
	}
	if err := checkName("initiator", t.Initiator); err != nil {
		return nil, err
	}
	// LUN 0 of a target that has lost it still answers, with zeros (LIO).
	if t.LUN < 1 || t.LUN > maxLUN {
		return nil, fault.New(fault.Invalid, "LUN %d of target %s is not between 1 and %d", t.LUN, t.IQN, maxLUN)
	}
	if t.Serial == "" {
		return nil, fault.New(fault.Invalid, "the serial of target %s is not given, so its disk could not be told from another", t.IQN)
	}
	if len(t.Portals) == 0 {
		return nil, fault.New(fault.Invalid, "target %s has no portal", t.IQN)
	}
	portals := make([]portal, len(t.Portals))
	for i, s := range t.Portals {
		p, err := parsePortal(s)
		if err != nil {
			return nil, err
		}
		portals[i] = p
	}
	return portals, nil
}
