package check

import (
	"context"
	"errors"
	"strings"

	"github.com/tarn-csi/tarn/pkg/run"
)

// packages says which Debian package brings a tool.
var packages = map[string]string{
	"zfs": "zfsutils-linux", "zpool": "zfsutils-linux", "modprobe": "kmod",
	"exportfs": "nfs-kernel-server", "mount.nfs": "nfs-common",
	"iscsiadm":  "open-iscsi",
	"mkfs.ext4": "e2fsprogs", "fsck.ext4": "e2fsprogs", "resize2fs": "e2fsprogs",
	"mkfs.xfs": "xfsprogs", "xfs_growfs": "xfsprogs",
	"mount": "mount", "umount": "mount", "blkid": "util-linux",
}

// versions are the arguments with which a tool tells its version, one tool a
// package. resize2fs tells it when it is given nothing to do. That of zfs is
// compared with the module's.
var versions = map[string][]string{
	"modprobe": {"-V"}, "mount": {"-V"}, "mount.nfs": {"-V"}, "iscsiadm": {"--version"}, "mkfs.xfs": {"-V"}, "resize2fs": {},
}

// tools are the looks for tools that are needed.
func (c *Checker) tools(names ...string) []look {
	var list []look
	for _, name := range names {
		list = append(list, look{"tool " + name, func(ctx context.Context, add func(...Finding)) { add(c.tool(ctx, name)) }})
	}
	return list
}

func (c *Checker) tool(ctx context.Context, name string) Finding {
	what := "tool " + name
	path, err := c.lookPath(name)
	if err != nil {
		return fail(what, "apt install "+packages[name], "missing")
	}
	args, tells := versions[name]
	if !tells {
		return ok(what, "%s", path)
	}
	out, err := c.ask(ctx, name, args...)
	if err != nil && run.ExitCode(err) < 0 {
		return fail(what, "apt install --reinstall "+packages[name], "%s does not run: %v", path, err)
	}
	for line := range strings.Lines(out + "\n" + run.Stderr(err)) {
		if strings.ContainsAny(line, "0123456789") {
			return ok(what, "%s, %s", path, strings.TrimSpace(line))
		}
	}
	return ok(what, "%s", path)
}

// ask runs a child that has a bound of its own.
func (c *Checker) ask(ctx context.Context, tool string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := c.run.Run(ctx, run.Cmd{Tool: tool, Args: args})
	return string(out), err
}

// late reports that a question was not answered in its time.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
