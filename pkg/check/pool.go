package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// pool looks at a pool from below to above: what is missing makes the rest
// meaningless.
func (c *Checker) pool(ctx context.Context, p config.Pool, add func(...Finding)) {
	state := c.poolState(zpoolOf(p))
	if c.first(p) {
		add(state)
	}
	if state.Status == Fail {
		return // a command would hang, or say the same
	}
	client, err := zfs.New(c.run, askTimeout)
	if err != nil {
		add(fail("parent "+p.Parent, "run it again", "%v", err))
		return
	}
	parent, err := c.readParent(ctx, client, p.Parent)
	add(c.parent(p, parent, err))
	if err != nil {
		return
	}
	add(c.keysLoaded(ctx, client, p.Parent, parent))
	c.exports(ctx, client, p, parent, add)
}

// zpoolOf is the name of the pool that a configured pool lies in.
func zpoolOf(p config.Pool) string {
	name, _, _ := strings.Cut(p.Parent, "/")
	return name
}

// first reports whether no pool that is configured before lies in the same one.
func (c *Checker) first(p config.Pool) bool {
	i := slices.IndexFunc(c.cfg.Pools, func(other config.Pool) bool { return zpoolOf(other) == zpoolOf(p) })
	return i < 0 || c.cfg.Pools[i].Name == p.Name
}

// poolState reads the module's own statistics: no command, and no waiting for
// the pool.
func (c *Checker) poolState(name string) Finding {
	what := "pool " + name
	if !c.host.exists("sys/module/zfs") {
		return fail(what, "load the module first", "cannot be seen without ZFS")
	}
	state, err := c.host.read("proc/spl/kstat/zfs/" + name + "/state")
	switch {
	case err != nil:
		return fail(what, "zpool import "+name, "is not imported")
	case state == "ONLINE":
		return ok(what, "%s", state)
	case state == "DEGRADED":
		return warn(what, "zpool status "+name, "%s", state)
	case state == "SUSPENDED":
		return fail(what, "bring its disks back, then zpool clear "+name, "%s: every access to it waits", state)
	}
	return fail(what, "zpool status "+name, "%s", state)
}

func (c *Checker) readParent(ctx context.Context, client *zfs.Client, parent string) (zfs.Dataset, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return client.Get(ctx, parent)
}

// parent judges the dataset under which volumes are made.
func (c *Checker) parent(p config.Pool, d zfs.Dataset, err error) Finding {
	what := "parent " + p.Parent
	owner, marked := d.Own("tarn:driver")
	dir, _ := d.Value("mountpoint")
	switch {
	case late(err):
		return fail(what, "see `zpool status` and `dmesg`", "ZFS does not answer: %v", err)
	case errors.Is(err, zfs.ErrNotExist) || errors.Is(err, zfs.ErrNoParent):
		return fail(what, "zfs create "+p.Parent, "does not exist")
	case err != nil:
		return fail(what, "see `zfs get all "+p.Parent+"`", "%v", err)
	case d.Type() != zfs.Filesystem:
		return fail(what, "use a filesystem as parent", "is a zvol")
	case marked && owner != c.cfg.DriverName:
		return fail(what, "use another parent, or --driver-name "+owner, "belongs to driver %q, and this is %q", owner, c.cfg.DriverName)
	case c.cfg.Serves("nfs") && !strings.HasPrefix(dir, "/"):
		return fail(what, "zfs set mountpoint=/PATH "+p.Parent, "has mountpoint %q, so nothing below it can be exported over NFS", dir)
	case !marked:
		return ok(what, "there; the first start of tarn serve marks it as driver %s", c.cfg.DriverName)
	}
	return ok(what, "there, of driver %s", owner)
}

// keysLoaded looks for encryption keys that a boot has not loaded.
func (c *Checker) keysLoaded(ctx context.Context, client *zfs.Client, parent string, d zfs.Dataset) Finding {
	what := "encryption of " + parent
	if d.KeyMissing() {
		return fail(what, "zfs load-key "+parent, "its key is not loaded")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	missing, err := client.KeysMissing(ctx, parent)
	if err != nil {
		return fail(what, "see `zfs get keystatus "+parent+"`", "the keys of volumes cannot be seen: %v", err)
	}
	if len(missing) > 0 {
		var names []string
		for name := range missing {
			names = append(names, name)
		}
		slices.Sort(names)
		return fail(what, "zfs load-key -r "+parent, "the keys of %s are not loaded", some(names))
	}
	if status, encrypted := d.Value("keystatus"); encrypted {
		return ok(what, "key %s", status)
	}
	return ok(what, "none")
}

// maxNamed bounds how many things a line names.
const maxNamed = 5

// some names the first few of a list.
func some(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
}
