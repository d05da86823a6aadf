package check

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tarn-csi/tarn/pkg/chap"
)

// node checks what the node service needs.
func (c *Checker) node(context.Context) []Finding {
	list := c.tools("mount", "umount", "blkid")
	if c.cfg.Serves("nfs") {
		list = append(list, c.tools("mount.nfs")...)
		list = append(list, c.module("nfs client", "nfs"))
	}
	if c.cfg.Serves("iscsi") {
		list = append(list, c.tools("iscsiadm", "mkfs.ext4", "mkfs.xfs", "fsck.ext4", "resize2fs", "xfs_growfs")...)
		list = append(list, c.module("iscsi initiator", "iscsi_tcp"), c.iscsid(), c.nodeKey())
	}
	return list
}

func (c *Checker) iscsid() Finding {
	if c.process("iscsid") {
		return ok("iscsid", "runs")
	}
	return warn("iscsid", "does not run: start iscsid, unless its socket starts it")
}

func (c *Checker) nodeKey() Finding {
	file := c.cfg.NodeKeyFile
	if c.cfg.Mode != "node" {
		file = c.cfg.MasterKeyFile
	}
	_, err := chap.ReadKey(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.cfg.Mode != "node":
		return ok("chap key", "%s is made at the first start", file)
	case errors.Is(err, fs.ErrNotExist):
		return warn("chap key", "%s is missing: volumes with derived CHAP cannot be staged; print the key with `tarn key NODE` on the storage host", file)
	case err != nil:
		return fail("chap key", "%v", err)
	}
	return ok("chap key", "%s is there", file)
}

// process reports whether a process of that name runs.
func (c *Checker) process(name string) bool {
	comms, err := filepath.Glob(filepath.Join(c.root, "proc/[0-9]*/comm"))
	if err != nil {
		return false
	}
	for _, path := range comms {
		if b, err := os.ReadFile(path); err == nil && string(b) == name+"\n" {
			return true
		}
	}
	return false
}
