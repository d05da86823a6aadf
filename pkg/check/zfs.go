package check

import (
	"context"
	"strconv"
	"strings"
)

const zfsLine = "zfs version"

// zfs compares the module with the tools, and both with what Tarn needs.
func (c *Checker) zfs(ctx context.Context, add func(...Finding)) {
	module, err := c.host.read("sys/module/zfs/version")
	if err != nil {
		advice := "modprobe zfs"
		if !c.available("zfs") {
			advice = "install zfs-dkms and the headers of this kernel, then modprobe zfs"
		}
		add(fail(zfsLine, advice, "the module is not loaded"))
		return
	}
	out, err := c.ask(ctx, "zfs", "version")
	add(zfsVersions(module, out, err))
}

// zfsVersions judges the module's version and what `zfs version` said.
func zfsVersions(module, out string, err error) Finding {
	if err != nil {
		return fail(zfsLine, "see `zfs version`", "the module is %s, and the tools do not tell theirs: %v", module, err)
	}
	tools := ""
	for line := range strings.Lines(out) {
		version, isTools := strings.CutPrefix(strings.TrimSpace(line), "zfs-")
		if isTools && !strings.HasPrefix(version, "kmod-") {
			tools = version
		}
	}
	switch {
	case older(module, 2, 1) || older(tools, 2, 1):
		return fail(zfsLine, "install OpenZFS 2.1 or later", "the module is %s and the tools are %q", module, tools)
	case upstream(module) != upstream(tools):
		return warn(zfsLine, "boot into the module of the installed version, or install the tools of the loaded one",
			"the module is %s and the tools are %s", module, tools)
	}
	return ok(zfsLine, "module %s, tools %s", module, tools)
}

// upstream is a version without the packager's part: 2.1.11 of 2.1.11-1.
func upstream(version string) string {
	v, _, _ := strings.Cut(version, "-")
	return v
}

// older reports whether a version is below major.minor, or none.
func older(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(upstream(second))
	return errA != nil || errB != nil || a < major || a == major && b < minor
}
