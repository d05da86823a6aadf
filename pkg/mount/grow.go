package mount

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Grow makes the filesystem that is mounted at mountPath as large as its
// device, and reports whether it grew. A filesystem that fills its device, or
// one that is mounted read-only, is left alone.
//
// Errors: fault.Precondition when the device is not what is mounted there.
func (f *Filesystems) Grow(ctx context.Context, device, mountPath string) (bool, error) {
	if err := checkDevice(device); err != nil {
		return false, err
	}
	table, err := readTable(f.table)
	if err != nil {
		return false, err
	}
	var top Info
	if mounts := at(table, mountPath); len(mounts) > 0 {
		top = mounts[len(mounts)-1]
	}
	if major, minor, ok := f.number(device); !ok || top.Target == "" || top.Major != major || top.Minor != minor {
		return false, fault.New(fault.Precondition, "%s is not mounted at %s, so it cannot be grown", device, mountPath)
	}
	if top.ReadOnly() {
		return false, nil
	}
	before, err := f.blocks(top.Target)
	if err != nil {
		return false, fault.New(fault.Unavailable, "%w", err)
	}
	e := &tools{ctx: ctx, run: f.run}
	resize := mountutils.NewResizeFs(e)
	need, err := resize.NeedResize(device, mountPath)
	if err == nil && need {
		_, err = resize.Resize(device, mountPath)
	}
	if err != nil {
		if ctx.Err() != nil {
			return false, fmt.Errorf("grow %s: %w", mountPath, ctx.Err())
		}
		return false, fault.New(fault.Unavailable, "grow the filesystem at %s: %w", mountPath, err)
	}
	after, err := f.blocks(top.Target)
	if err != nil {
		return false, fault.New(fault.Unavailable, "%w", err)
	}
	return after > before, nil
}

// dataBlocks is the size of a mounted ext or XFS filesystem in its blocks,
// statfs(2). The kernel has it in memory, so a dead disk does not delay it.
func dataBlocks(mountPath string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(mountPath, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: mountPath, Err: err}
	}
	return st.Blocks, nil
}
