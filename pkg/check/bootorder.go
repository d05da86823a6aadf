package check

import "strings"

const (
	nfsUnit      = "nfs-server.service"
	zfsMountUnit = "zfs-mount.service"
)

// bootOrder reads from systemd's units whether the filesystems of the pools are
// there when the NFS server starts: imported and mounted at all, and before it.
// A server that answers earlier tells nodes that their files do not exist.
func (c *Checker) bootOrder() Finding {
	const what = "boot order"
	if !c.host.exists("run/systemd/system") {
		return ok(what, "not kept by systemd, so not looked at: pools, their mounts, then the NFS server")
	}
	u := c.readUnits()
	switch {
	case !u.there(nfsUnit):
		return fail(what, "apt install nfs-kernel-server", "there is no %s", nfsUnit)
	case !u.there(zfsMountUnit):
		return fail(what, "apt install zfsutils-linux", "there is no %s", zfsMountUnit)
	case !c.mountsAtBoot(u):
		return warn(what, "systemctl enable "+zfsMountUnit+" zfs.target", "%s is not enabled: no pool is mounted by a boot", zfsMountUnit)
	case !u.enabled("zfs-import-cache.service") && !u.enabled("zfs-import-scan.service"):
		return warn(what, "systemctl enable zfs-import-cache.service zfs-import.target", "no pool is imported by a boot")
	case !u.after(nfsUnit, zfsMountUnit):
		return fail(what, "systemctl edit "+nfsUnit+", and add After="+zfsMountUnit+" below [Unit]",
			"%s may start before %s", nfsUnit, zfsMountUnit)
	}
	return ok(what, "%s is ordered after %s", nfsUnit, zfsMountUnit)
}

// mountsAtBoot reports whether something mounts datasets at boot: the service,
// or the units of zfs-mount-generator(8).
func (c *Checker) mountsAtBoot(u units) bool {
	if u.enabled(zfsMountUnit) {
		return true
	}
	for _, list := range c.host.glob("etc/zfs/zfs-list.cache/*") {
		if text, err := c.host.read(list); err == nil && strings.TrimSpace(text) != "" {
			return true
		}
	}
	return false
}
