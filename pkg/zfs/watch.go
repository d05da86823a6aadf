package zfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// kstats is where the module shows what it knows of each imported pool.
const kstats = "/proc/spl/kstat/zfs"

// Suspended is the state of a pool that holds back all I/O until its devices
// answer again and it is told to go on (zpool-clear(8)).
const Suspended = "SUSPENDED"

// PoolState returns the state of the pool that a dataset lies in, as zpool(8)
// prints it: ONLINE, DEGRADED, SUSPENDED. It starts no command and never waits
// for the pool (spa_state_to_name in module/zfs/spa_misc.c). ErrNotExist when
// the pool is not imported.
func (c *Client) PoolState(_ context.Context, dataset string) (string, error) {
	pool, _, _ := strings.Cut(dataset, "/")
	raw, err := os.ReadFile(filepath.Join(kstats, pool, "state"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", &causeError{cause: ErrNotExist, err: fmt.Errorf("pool %s is not imported: %w", pool, err)}
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(raw)), nil
}

// Mounting tells whether a `zpool import` or `zfs mount` runs on this host: it
// mounts filesystems one after the other, each over whatever was mounted in its
// place meanwhile (zpool_enable_datasets in lib/libzfs/libzfs_mount.c). A pool can be
// seen before its import has ended.
func (c *Client) Mounting(context.Context) (bool, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return false, err
	}
	verbs := map[string]string{"zpool": "import", "zfs": "mount"}
	for _, name := range names {
		tool, err := os.ReadFile(name)
		// Only of these tools, since the command line of a process that hangs may not
		// be readable.
		if verb := verbs[strings.TrimSpace(string(tool))]; err == nil && verb != "" {
			var line []byte
			line, err = os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			if argv := strings.Split(string(line), "\x00"); len(argv) > 1 && argv[1] == verb {
				return true, nil
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // those have ended
			return false, err
		}
	}
	return false, nil
}

// Mounts returns where the filesystems of this host are mounted, by dataset.
func (c *Client) Mounts(context.Context) (map[string]string, error) {
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "zfs" || m.Root != "/", false
	})
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	dirs := map[string]string{}
	for _, m := range infos {
		if _, bound := dirs[m.Source]; !bound {
			dirs[m.Source] = m.Mountpoint
		}
	}
	return dirs, nil
}

// KeysMissing returns those of the filesystems and volumes directly below
// parent whose encryption key is not loaded, with one command. ErrNoParent when
// the parent does not exist.
func (c *Client) KeysMissing(ctx context.Context, parent string) (map[string]bool, error) {
	out, err := c.zfs(ctx, []string{"get", "-H", "-d", "1", "-t", "filesystem,volume", "-o", "name,value", "keystatus", parent}, parent)
	if errors.Is(err, ErrNotExist) {
		return nil, recast(err, ErrNoParent)
	}
	if err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), "\tunavailable"); ok && name != parent {
			missing[name] = true
		}
	}
	return missing, nil
}
