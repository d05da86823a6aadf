package run

import "slices"

// Other is the kind of tool, or of verb, that has no name of its own.
const Other = "other"

// kinds are the tools that have a name of their own, with their verbs: the first
// word that a tool without verbs is given is none.
var kinds = map[string][]string{
	"zfs":        {"clone", "create", "destroy", "get", "inherit", "list", "receive", "rename", "send", "set", "snapshot"},
	"iscsiadm":   {"iface", "node", "session"},
	"multipathd": {"resize", "show"},
	"dmsetup":    {"remove"},

	"blkid": nil, "blockdev": nil, "dd": nil, "e2fsck": nil, "exportfs": nil, "mkfs.ext3": nil, "mkfs.ext4": nil, "mkfs.xfs": nil,
	"modprobe": nil, "mount": nil, "multipath": nil, "resize2fs": nil, "stat": nil, "tee": nil, "umount": nil, "xfs_growfs": nil,
}

// Kind is what kind of child it is, for who counts: whatever is started, there are
// never more kinds than the table has, and Other. verb is "" for a tool without.
func (c Child) Kind() (tool, verb string) {
	verbs, known := kinds[c.Tool]
	switch {
	case !known:
		return Other, Other
	case len(verbs) == 0:
		return c.Tool, ""
	case !slices.Contains(verbs, c.Verb):
		return c.Tool, Other
	}
	return c.Tool, c.Verb
}
