package check

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// storageHost checks what the controller needs.
func (c *Checker) storageHost(ctx context.Context) []Finding {
	list := c.tools("zfs", "zpool")
	list = append(list, c.zfsModule())
	for _, p := range c.cfg.Pools {
		list = append(list, c.pool(ctx, p)...)
	}
	if c.cfg.Serves("nfs") {
		list = append(list, c.tools("exportfs")...)
		list = append(list, c.nfsd(), c.exportsDir())
	}
	if c.cfg.Serves("iscsi") {
		list = append(list, c.configfs(), c.module("iscsi target", "target_core_mod", "target_core_iblock", "iscsi_target_mod"))
		for _, p := range c.cfg.Pools {
			if p.CHAP == chap.None {
				list = append(list, warn("chap of pool "+p.Name, "is none: whoever knows a node's initiator name reads its volumes; set chap: derived"))
			}
		}
	}
	return list
}

func (c *Checker) zfsModule() Finding {
	version, err := os.ReadFile(filepath.Join(c.root, "sys/module/zfs/version"))
	if err != nil {
		return fail("zfs module", "is not loaded: modprobe zfs")
	}
	return ok("zfs module", "version %s", strings.TrimSpace(string(version)))
}

func (c *Checker) pool(ctx context.Context, p config.Pool) []Finding {
	name, _, _ := strings.Cut(p.Parent, "/")
	what := "pool " + name
	out, err := c.run.Run(ctx, run.Cmd{Tool: "zpool", Args: []string{"list", "-H", "-o", "health", name}})
	if err != nil {
		return []Finding{fail(what, "%v: import the pool with `zpool import %s`", err, name)}
	}
	health := strings.TrimSpace(string(out))
	list := []Finding{ok(what, "%s", health)}
	if health != "ONLINE" {
		list[0] = warn(what, "is %s: see `zpool status %s`", health, name)
	}
	client, err := zfs.New(c.run, c.cfg.OperationTimeout)
	if err != nil {
		return append(list, fail("parent "+p.Parent, "%v", err))
	}
	d, err := client.Get(ctx, p.Parent)
	if err != nil {
		return append(list, fail("parent "+p.Parent, "%v: make it with `zfs create %s`", err, p.Parent))
	}
	return append(list, c.parent(p, d))
}

func (c *Checker) parent(p config.Pool, d zfs.Dataset) Finding {
	what := "parent " + p.Parent
	if owner, marked := d.Own("tarn:driver"); marked && owner != c.cfg.DriverName {
		return fail(what, "belongs to driver %q and this is %q: use another parent", owner, c.cfg.DriverName)
	}
	if d.KeyMissing() {
		return fail(what, "is encrypted and its key is not loaded: zfs load-key %s", p.Parent)
	}
	if dir, _ := d.Value("mountpoint"); c.cfg.Serves("nfs") && !strings.HasPrefix(dir, "/") {
		return fail(what, "has mountpoint %q, so nothing below it can be exported over NFS: set it to a path", dir)
	}
	return ok(what, "is there")
}

func (c *Checker) nfsd() Finding {
	threads, err := os.ReadFile(filepath.Join(c.root, "proc/fs/nfsd/threads"))
	if err != nil || strings.TrimSpace(string(threads)) == "0" {
		return fail("nfs server", "is not running: start nfs-server")
	}
	ports, err := os.ReadFile(filepath.Join(c.root, "proc/fs/nfsd/portlist"))
	if err != nil || strings.TrimSpace(string(ports)) == "" {
		return fail("nfs server", "listens on no port: restart nfs-server")
	}
	if !c.process("rpc.mountd") {
		return fail("nfs server", "has no rpc.mountd beside it, which answers who may mount what: start nfs-mountd")
	}
	return ok("nfs server", "runs with %s threads", strings.TrimSpace(string(threads)))
}

func (c *Checker) exportsDir() Finding {
	dir := filepath.Join(c.root, "etc/exports.d")
	st, err := os.Stat(dir)
	if os.IsNotExist(err) {
		return ok("exports", "/etc/exports.d is made with the first publication")
	}
	if err != nil || !st.IsDir() {
		return fail("exports", "/etc/exports.d is no directory: make it one")
	}
	return ok("exports", "/etc/exports.d is there")
}

func (c *Checker) configfs() Finding {
	if _, err := os.Stat(filepath.Join(c.root, "sys/kernel/config/target")); err == nil {
		return ok("configfs", "has a target tree")
	}
	if _, err := os.Stat(filepath.Join(c.root, "sys/kernel/config")); err != nil {
		return fail("configfs", "is not there: modprobe configfs, and mount -t configfs configfs /sys/kernel/config")
	}
	return warn("configfs", "has no target tree yet: it comes with the iSCSI target modules, which tarn loads")
}
