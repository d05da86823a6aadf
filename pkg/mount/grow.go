package mount

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		return false, fault.New(fault.Unavailable, "grow the filesystem at %s: %w", mountPath, errors.Join(err, e.failed))
	}
	// resize2fs says the one, xfs_growfs the other when there is nothing to do.
	return need && !strings.Contains(e.last, "Nothing to do") && !strings.Contains(e.last, "data size unchanged"), nil
}
