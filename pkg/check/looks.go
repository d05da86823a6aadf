package check

import (
	"context"

	"github.com/tarn-csi/tarn/pkg/config"
)

// looks are the checks for this configuration, in the order of the table.
func (c *Checker) looks() []look {
	list := []look{c.plain("user", c.user), c.plain("clock", c.checkClock)}
	if c.cfg.Mode != config.Node {
		list = append(list, c.storageLooks()...)
	}
	if c.cfg.Mode != config.Controller {
		list = append(list, c.nodeLooks()...)
	}
	return append(list, c.portalLooks()...)
}

// storageLooks are for what the controller needs.
func (c *Checker) storageLooks() []look {
	list := append(c.tools("zfs", "zpool", "modprobe"), look{"zfs", c.zfs}, c.plain("udev", c.udev))
	if c.cfg.Serves("nfs") {
		list = append(list, c.tools("exportfs")...)
		list = append(list, c.plain("nfs server module", func() Finding { return c.module("nfs server module", "nfsd") }),
			c.plain("nfs server", c.nfsServer), c.plain("mountd", c.mountd), c.plain("exports directory", c.exportsDir),
			c.plain("boot order", c.bootOrder))
	}
	if c.cfg.Serves("iscsi") {
		list = append(list, c.plain("iscsi target modules", func() Finding {
			return c.module("iscsi target modules", "target_core_mod", "target_core_iblock", "iscsi_target_mod")
		}), c.plain("configfs", c.configfs), look{"lvm", c.lvm})
	}
	for _, p := range c.cfg.Pools {
		list = append(list, look{"pool " + p.Name, func(ctx context.Context, add func(...Finding)) { c.pool(ctx, p, add) }})
	}
	if c.cfg.Serves("iscsi") {
		list = append(list, look{"chap", c.chap})
	}
	return list
}

// nodeLooks are for what the node service needs.
func (c *Checker) nodeLooks() []look {
	list := c.tools("mount", "umount", "blkid")
	if c.cfg.Serves("nfs") {
		list = append(list, c.tools("mount.nfs")...)
		list = append(list, c.plain("nfs client modules", func() Finding { return c.module("nfs client modules", "nfs", "nfsv4") }))
	}
	if c.cfg.Serves("iscsi") {
		list = append(list, c.tools("iscsiadm", "mkfs.ext4", "mkfs.xfs", "fsck.ext4", "resize2fs", "xfs_growfs")...)
		list = append(list, c.plain("iscsi initiator module", func() Finding { return c.module("iscsi initiator module", "iscsi_tcp") }),
			c.plain("filesystem modules", func() Finding { return c.module("filesystem modules", "ext4", "xfs") }),
			c.plain("iscsid", c.iscsid), c.plain("multipath", c.multipath))
	}
	return list
}

// plain is a look that asks nobody but the kernel's files.
func (c *Checker) plain(name string, find func() Finding) look {
	return look{name, func(_ context.Context, add func(...Finding)) { add(find()) }}
}

// user says whether this process may see what it looks at.
func (c *Checker) user() Finding {
	if c.euid() != 0 {
		return warn("user", "run it again with sudo", "not root, who alone sees everything that follows")
	}
	return ok("user", "root")
}
