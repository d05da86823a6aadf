package check

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// packages says which Debian package brings a tool.
var packages = map[string]string{
	"zfs": "zfsutils-linux", "zpool": "zfsutils-linux",
	"exportfs": "nfs-kernel-server", "mount.nfs": "nfs-common",
	"iscsiadm":  "open-iscsi",
	"mkfs.ext4": "e2fsprogs", "fsck.ext4": "e2fsprogs", "resize2fs": "e2fsprogs",
	"mkfs.xfs": "xfsprogs", "xfs_growfs": "xfsprogs",
	"mount": "mount", "umount": "mount", "blkid": "util-linux",
}

func (c *Checker) tools(names ...string) []Finding {
	var list []Finding
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			list = append(list, fail("tool "+name, "is missing: install %s", packages[name]))
			continue
		}
		list = append(list, ok("tool "+name, "%s", path))
	}
	return list
}

// module reports whether all of the modules are loaded, built in, or at least
// there to be loaded.
func (c *Checker) module(what string, names ...string) Finding {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(c.root, "sys/module", name)); err == nil {
			continue
		}
		if c.available(name) {
			continue
		}
		return fail(what, "kernel module %s is neither loaded nor installed: install the kernel's full module package", name)
	}
	return ok(what, "modules %s", strings.Join(names, ", "))
}

// available looks for the module in the running kernel's lists.
func (c *Checker) available(name string) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	release := string(bytes.TrimRight(u.Release[:], "\x00"))
	for _, file := range []string{"modules.dep", "modules.builtin"} {
		b, err := os.ReadFile(filepath.Join(c.root, "lib/modules", release, file))
		if err == nil && bytes.Contains(b, []byte("/"+name+".ko")) {
			return true
		}
	}
	return false
}
