package check

import (
	"slices"

	"github.com/moby/sys/mountinfo"
)

const configfsPath = "/sys/kernel/config"

// configfs is where the kernel's iSCSI target is told what to serve.
func (c *Checker) configfs() Finding {
	mounts, err := c.host.mounts()
	if err != nil {
		return fail("configfs", "see /proc/self/mountinfo", "%v", err)
	}
	if !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.FSType == "configfs" && m.Mountpoint == configfsPath }) {
		return fail("configfs", "modprobe configfs && mount -t configfs configfs "+configfsPath, "is not mounted at %s", configfsPath)
	}
	if !c.host.exists(configfsPath + "/target/iscsi") {
		return ok("configfs", "mounted; the target's tree comes with its modules, which tarn loads")
	}
	return ok("configfs", "mounted, with the target's tree")
}
