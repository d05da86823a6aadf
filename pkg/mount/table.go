package mount

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// tablePath is this process's own mount table, proc(5).
const tablePath = "/proc/self/mountinfo"

// Info is one line of the mount table.
type Info struct {
	// Source is what was given to mount(2): a device, HOST:/share, or any text.
	Source string
	// Target is the mount point, with symbolic links resolved by the kernel.
	Target string
	// Root is the directory of the filesystem that is seen at Target: "/"
	// unless it is a bind mount of something below.
	Root   string
	FSType string
	// Major and Minor are the filesystem's device number. For a disk's
	// filesystem it is the disk's.
	Major, Minor int
	// Options hold for this mount point, SuperOptions for the filesystem
	// wherever it is mounted.
	Options, SuperOptions []string
	ID, ParentID          int
}

// ReadOnly reports that nothing can be written through this mount: it or its
// whole filesystem is read-only.
func (i Info) ReadOnly() bool {
	return slices.Contains(i.Options, "ro") || slices.Contains(i.SuperOptions, "ro")
}

// Mounts returns the mount table in the kernel's order, the oldest first. It
// only reads /proc, so no dead server can hold it up.
//
// It uses the parser beneath mount-utils' IsMountPoint. ParseMountInfo of
// mount-utils itself refuses the whole table when one line has an empty source
// (mount -t tmpfs "" DIR), splits a path at Unicode blanks, which the kernel
// does not escape, and leaves \040 in place.
func (m *Mounter) Mounts(ctx context.Context) ([]Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return readTable(m.table)
}

// TableOf returns the mount table of the mount namespace that a process is in,
// given its directory below /proc.
func TableOf(process string) ([]Info, error) { return readTable(filepath.Join(process, "mountinfo")) }

func readTable(path string) ([]Info, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	parsed, err := mountinfo.GetMountsFromReader(bytes.NewReader(content), nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	infos := make([]Info, len(parsed))
	for i, p := range parsed {
		infos[i] = Info{
			Source: p.Source, Target: p.Mountpoint, Root: p.Root, FSType: p.FSType,
			Major: p.Major, Minor: p.Minor,
			Options: splitOptions(p.Options), SuperOptions: splitOptions(p.VFSOptions),
			ID: p.ID, ParentID: p.Parent,
		}
	}
	return infos, nil
}

func splitOptions(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// At returns what is mounted exactly at target, the oldest first: the last one
// is what a process sees there. Symbolic links above target are followed, as
// mount(2) does; target itself is never touched.
func (m *Mounter) At(ctx context.Context, target string) ([]Info, error) {
	table, err := m.Mounts(ctx)
	if err != nil {
		return nil, err
	}
	return at(table, target), nil
}

func at(table []Info, target string) []Info {
	target = filepath.Clean(target)
	if found := exactly(table, target); len(found) > 0 {
		return found
	}
	return exactly(table, resolveParent(target))
}

func exactly(table []Info, target string) []Info {
	var found []Info
	for _, i := range table {
		if i.Target == target {
			found = append(found, i)
		}
	}
	return found
}

// resolveParent follows the links above path. The last component is left
// alone: looking at the root of a dead mount hangs.
func resolveParent(path string) string {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return path
	}
	return filepath.Join(parent, filepath.Base(path))
}

// place is where a path lies: a filesystem and a directory or file in it.
type place struct {
	major, minor int
	root         string
}

// locate finds the place of a path through the mount that covers it, without
// looking at the path itself.
func locate(table []Info, path string) (place, bool) {
	path = resolveParent(filepath.Clean(path))
	best := -1
	for n, i := range table {
		if !within(path, i.Target) {
			continue
		}
		// Of two at one target the later one covers the earlier.
		if best < 0 || len(i.Target) >= len(table[best].Target) {
			best = n
		}
	}
	if best < 0 {
		return place{}, false
	}
	i := table[best]
	below := strings.TrimPrefix(path, strings.TrimSuffix(i.Target, "/"))
	return place{major: i.Major, minor: i.Minor, root: filepath.Join(i.Root, below)}, true
}

func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

func (i Info) place() place { return place{major: i.Major, minor: i.Minor, root: i.Root} }
