package publish

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/ident"
)

var (
	iqnPattern = regexp.MustCompile(`^iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[a-z0-9._-]+)*$`)
	hostLabel  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	digits     = regexp.MustCompile(`^[0-9.]+$`)
)

func validIQN(s string) bool { return len(s) <= ident.MaxIQN && iqnPattern.MatchString(s) }

// validHost takes a literal address without brackets or zone, or a host name.
// A name of digits and dots only is a mistyped address.
func validHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	if len(s) > 253 || digits.MatchString(s) {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !hostLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// validPortal takes HOST:PORT or HOST; IPv6 in brackets, or bare without a port.
func validPortal(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		port := s[i+1:]
		host = s[:i]
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return ok && err == nil && a.Is6() && a.Zone() == ""
	}
	return !strings.Contains(host, ":") && validHost(host)
}

func validPortals(s string) bool {
	list := strings.Split(s, ",")
	if len(list) > maxPortals {
		return false
	}
	for _, p := range list {
		if !validPortal(p) {
			return false
		}
	}
	return true
}
