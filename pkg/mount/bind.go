package mount

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	mountutils "k8s.io/mount-utils"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// undoTimeout is how long taking back a half-done mount may take when the
// caller's deadline has passed.
const undoTimeout = 10 * time.Second

// perMount are the flags that belong to a mount point, not to the filesystem.
// A remount replaces all of them, so those that the source has are repeated.
var perMount = []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "nosymfollow"}

// Bind makes source visible at target too: a directory at a directory, or a
// device node at a plain file. Both must exist. With readOnly the new mount
// refuses writes while source does not: the kernel takes that only in a second
// step (mount(2), MS_BIND), and when it fails the first one is undone. A
// source that is mounted read-only stays so at target.
func (m *Mounter) Bind(ctx context.Context, source, target string, readOnly bool) error {
	if err := checkArguments(source, target, ""); err != nil {
		return err
	}
	if !filepath.IsAbs(source) {
		return fault.New(fault.Invalid, "%q cannot be bound: it is not an absolute path", source)
	}
	before, err := m.Mounts(ctx)
	if err != nil {
		return err
	}
	// A device may be named by a link; a mount point is never looked at.
	if len(at(before, source)) == 0 {
		if real, err := filepath.EvalSymlinks(source); err == nil {
			source = real
		}
	}
	want, ok := locate(before, source)
	if !ok {
		return fault.New(fault.Precondition, "no mounted filesystem holds %s", source)
	}
	options := []string{"bind"}
	if readOnly {
		options = append(options, "ro")
	}
	_, bindOptions, remountOptions := mountutils.MakeBindOpts(options)
	covered := len(at(before, target))

	if _, err := m.run.Run(ctx, run.Cmd{Tool: "mount", Args: mountutils.MakeMountArgs(source, target, "", bindOptions)}); err != nil {
		return errors.Join(mountFailed(err, source, target), m.undo(ctx, target, covered))
	}
	top, err := m.bound(ctx, target, covered, want)
	if err == nil && readOnly {
		for _, o := range perMount {
			if slices.Contains(top.Options, o) {
				remountOptions = append(remountOptions, o)
			}
		}
		if _, err = m.run.Run(ctx, run.Cmd{Tool: "mount", Args: mountutils.MakeMountArgs(source, target, "", remountOptions)}); err != nil {
			err = mountFailed(err, source, target)
		} else if top, err = m.bound(ctx, target, covered, want); err == nil && !top.ReadOnly() {
			err = fault.New(fault.Unavailable, "%s can still be written after a remount as read-only that returned success", target)
		}
	}
	if err != nil {
		return errors.Join(err, m.undo(ctx, target, covered))
	}
	return nil
}

// bound verifies that one more mount than before is at target, and that it
// shows the wanted place.
func (m *Mounter) bound(ctx context.Context, target string, before int, want place) (Info, error) {
	now, err := m.At(ctx, target)
	if err != nil {
		return Info{}, err
	}
	if len(now) <= before {
		return Info{}, fault.New(fault.Unavailable, "the bind mount at %s returned success, but nothing is mounted there", target)
	}
	top := now[len(now)-1]
	if top.place() != want {
		return Info{}, fault.New(fault.Precondition, "%s shows %s of device %d:%d, not what was bound there",
			target, top.Root, top.Major, top.Minor)
	}
	return top, nil
}

// undo unmounts target until only `keep` mounts are left there.
func (m *Mounter) undo(ctx context.Context, target string, keep int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := m.unmountTo(ctx, target, keep); err != nil {
		return fmt.Errorf("and the mount at %s could not be taken back: %w", target, err)
	}
	return nil
}
