package access

import "strings"

// ParseCapability reads what Capability.String writes of a valid one.
func ParseCapability(s string) (Capability, bool) {
	kind, rest, _ := strings.Cut(s, "/")
	mode, fsType, _ := strings.Cut(rest, "/")
	c := Capability{FSType: fsType}
	switch kind {
	case Mount.String():
		c.Type = Mount
	case Block.String():
		c.Type = Block
	}
	var known bool
	c.Mode, known = ParseMode(mode)
	return c, known && c.Type != 0 && c.String() == s
}
