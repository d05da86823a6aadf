package check

import (
	"errors"
	"io/fs"
	"os"
)

// nfsServer looks for threads and listeners: a line in mountd's table is no
// proof that anybody serves it.
func (c *Checker) nfsServer() Finding {
	const start = "systemctl start nfs-server"
	threads, err := c.host.read("proc/fs/nfsd/threads")
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fail("nfs server", "run it again as root", "cannot be seen: %v", err)
	case err != nil || threads == "0":
		return fail("nfs server", start, "does not run")
	}
	if ports, err := c.host.read("proc/fs/nfsd/portlist"); err != nil || ports == "" {
		return fail("nfs server", "systemctl restart nfs-server", "listens on no port")
	}
	versions, err := c.host.read("proc/fs/nfsd/versions")
	if err != nil {
		return fail("nfs server", start, "does not tell its versions: %v", err)
	}
	return ok("nfs server", "%s threads, versions %s", threads, versions)
}

// mountd looks for the daemon that answers the kernel when it asks who may mount
// what: rpc.mountd(8), or nfsv4.exportd(8) where only version 4 is served.
func (c *Checker) mountd() Finding {
	if len(c.host.processes("rpc.mountd", "nfsv4.exportd")) == 0 {
		return fail("mountd", "systemctl start nfs-mountd", "does not run, so no node can mount")
	}
	if !c.host.exists("var/lib/nfs/etab") {
		return fail("mountd", "exportfs -r", "runs without an export table")
	}
	return ok("mountd", "runs")
}

func (c *Checker) exportsDir() Finding {
	st, err := os.Stat(c.host.path("etc/exports.d"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("exports directory", "/etc/exports.d is made with the first publication")
	case err != nil:
		return fail("exports directory", "make /etc/exports.d a directory", "%v", err)
	case !st.IsDir():
		return fail("exports directory", "make /etc/exports.d a directory", "/etc/exports.d is a file")
	}
	return ok("exports directory", "/etc/exports.d")
}
