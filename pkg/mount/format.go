package mount

import (
	"context"
	"errors"
	"os/exec"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Format makes a filesystem of type ext4, ext3 or xfs on the whole device.
// options are further arguments of mkfs, after ours.
//
// Unless again is set, the device is probed once more and must be blank, since
// mke2fs without a terminal overwrites whatever is there. again repeats a
// format that was cut off, over what that left. A device that is mounted or
// held is refused by mkfs in either case.
//
// Errors: fault.Precondition when the device is not blank; fault.Unavailable
// when it cannot be read or the tool is missing; fault.Invalid for a type that
// is not known.
func (f *Filesystems) Format(ctx context.Context, device, fsType string, options []string, again bool) error {
	args, ok := mkfsArgs(fsType, again)
	if !ok {
		return fault.New(fault.Invalid, "filesystem %q is not known: ext4, ext3 and xfs are", fsType)
	}
	if err := checkDevice(device); err != nil {
		return err
	}
	if !again {
		c, err := f.Probe(ctx, device)
		if err != nil {
			return err
		}
		if !c.Blank {
			return fault.New(fault.Precondition, "%s holds %s and is not formatted", device, c.What)
		}
	}
	args = append(append(args, options...), "--", device)
	_, err := f.run.Run(ctx, run.Cmd{Tool: "mkfs." + fsType, Args: args})
	switch {
	case err == nil:
		return nil
	case contextError(err):
		return err
	case errors.Is(err, exec.ErrNotFound):
		return fault.New(fault.Unavailable, "%s cannot be formatted: %w", device, err)
	}
	return fault.New(fault.Unavailable, "%s was not formatted: %w", device, err)
}

// mkfsArgs returns the arguments of mkfs for a zvol.
//
// Nothing is discarded: a new zvol has nothing allocated, and unmapping a large
// one over the network only takes time. ext: no blocks are reserved for root
// (a volume is no root disk), and blocks have 4 KiB also when the volume is
// small, since 1 KiB blocks would rewrite each block of the zvol many times
// over. xfs: -f only to go over what a cut-off mkfs left.
func mkfsArgs(fsType string, again bool) ([]string, bool) {
	switch fsType {
	case "ext4", "ext3":
		return []string{"-q", "-m", "0", "-b", "4096", "-E", "nodiscard"}, true
	case "xfs":
		args := []string{"-q", "-K"}
		if again {
			args = append(args, "-f")
		}
		return args, true
	}
	return nil, false
}
