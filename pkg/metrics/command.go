package metrics

import (
	"slices"

	"github.com/tarn-csi/tarn/pkg/run"
)

// other is the label of everything that has no label of its own.
const other = "other"

// tools are the tools that have a label of their own, with their verbs: what a
// tool without verbs is given is no verb.
var tools = map[string][]string{
	"zfs":        {"clone", "create", "destroy", "get", "inherit", "list", "receive", "rename", "send", "set", "snapshot"},
	"iscsiadm":   {"iface", "node", "session"},
	"multipathd": {"resize", "show"},
	"dmsetup":    {"remove"},

	"blkid": nil, "blockdev": nil, "dd": nil, "e2fsck": nil, "exportfs": nil, "mkfs.ext3": nil, "mkfs.ext4": nil, "mkfs.xfs": nil,
	"modprobe": nil, "mount": nil, "multipath": nil, "resize2fs": nil, "stat": nil, "tee": nil, "umount": nil, "xfs_growfs": nil,
}

// command returns the labels of a child. Whatever is started, there are never
// more than the table has, and other.
func command(c run.Child) (tool, verb string) {
	verbs, known := tools[c.Tool]
	switch {
	case !known:
		return other, other
	case len(verbs) == 0:
		return c.Tool, ""
	case !slices.Contains(verbs, c.Verb):
		return c.Tool, other
	}
	return c.Tool, c.Verb
}
