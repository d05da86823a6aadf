package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/step"
)

// serverMountFlags keep what a client stores from becoming a privilege on the
// storage host. The system call does not read the dataset's own setuid,
// devices and atime properties.
const serverMountFlags = unix.MS_NOSUID | unix.MS_NODEV

// MountedAt returns where the filesystem is mounted on this host; false when
// it is not mounted.
func (c *Client) MountedAt(_ context.Context, dataset string) (string, bool, error) {
	// The kernel shows a dataset's present name, also when it was renamed while
	// it was mounted (zpl_show_devname).
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		found := m.FSType == "zfs" && m.Source == dataset && m.Root == "/"
		return !found, found
	})
	if err != nil {
		return "", false, fmt.Errorf("read the mount table: %w", err)
	}
	if len(infos) == 0 {
		return "", false, nil
	}
	return infos[0].Mountpoint, true, nil
}

// Mount mounts a filesystem at dir by the system call, which unlike `zfs
// mount` runs no exportfs. dir is made when it is missing; a directory with
// something in it is refused. atime is the dataset's property. ErrNoKey when
// its encryption key is not loaded; unix.EBUSY when it is mounted already,
// elsewhere too, which the kernel would let pass.
func (c *Client) Mount(ctx context.Context, dataset, dir string, atime bool) error {
	if at, mounted, err := c.MountedAt(ctx, dataset); err != nil {
		return err
	} else if mounted {
		return &os.PathError{Op: "mount " + dataset + " (mounted at " + at + ") at", Path: dir, Err: unix.EBUSY}
	}
	if err := step.Do(ctx, step.File, "mkdir", func() error { return os.MkdirAll(dir, 0o755) }); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: %s is not mounted over it", dir, dataset)
	}
	flags := uintptr(serverMountFlags)
	if !atime {
		flags |= unix.MS_NOATIME
	}
	return mount(ctx, dataset, dir, flags)
}

func mount(ctx context.Context, dataset, dir string, flags uintptr) error {
	err := step.Do(ctx, step.Mount, "mount", func() error { return unix.Mount(dataset, dir, "zfs", flags, "zfsutil") })
	if err == nil {
		return nil
	}
	var cause error
	switch {
	case errors.Is(err, unix.EACCES): // zfs_domount, when there is no key
		cause = ErrNoKey
	case errors.Is(err, unix.ENOENT):
		cause = ErrNotExist
	}
	err = &os.PathError{Op: "mount " + dataset + " at", Path: dir, Err: err}
	if cause == nil {
		return err
	}
	return &causeError{cause: cause, err: err}
}

// Remount gives what is mounted at dir the flags of Mount with that atime. `zfs
// set atime=off` does it by itself, and `zfs set atime=on` does not: a remount
// without any word about atime keeps what was (do_remount in fs/namespace.c).
func (c *Client) Remount(ctx context.Context, dir string, atime bool) error {
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | serverMountFlags | unix.MS_RELATIME)
	if !atime {
		flags = flags&^unix.MS_RELATIME | unix.MS_NOATIME
	}
	if err := step.Do(ctx, step.Mount, "remount", func() error { return unix.Mount("", dir, "", flags, "") }); err != nil {
		return &os.PathError{Op: "remount", Path: dir, Err: err}
	}
	return nil
}

// Unmount unmounts a filesystem by the system call and removes its empty
// mount point. ErrBusy while something has it open.
func (c *Client) Unmount(ctx context.Context, dir string) error {
	if err := step.Do(ctx, step.Mount, "unmount", func() error { return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) }); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return &causeError{cause: ErrBusy, err: &os.PathError{Op: "unmount", Path: dir, Err: err}}
		}
		return &os.PathError{Op: "unmount", Path: dir, Err: err}
	}
	// Never more than an empty directory: what lies under a mount is not ours.
	err := step.Do(ctx, step.File, "rmdir", func() error { return os.Remove(filepath.Clean(dir)) })
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// Root is the owner and mode of a filesystem's root directory.
type Root struct{ UID, GID, Mode uint32 }

// freshRoot is how ZFS makes a root directory.
var freshRoot = Root{Mode: 0o755}

// SetRoot gives a mounted filesystem's root its owner and mode, as long as it
// is how ZFS made it, or how an earlier SetRoot that was cut off left it: empty,
// of root, 0755. A volume in use is left as its users have it.
func (c *Client) SetRoot(ctx context.Context, dir string, r Root) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	have := Root{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777}
	if have == r || !between(have, r) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return err
	}
	if err := step.Do(ctx, step.File, "chown", func() error { return os.Chown(dir, int(r.UID), int(r.GID)) }); err != nil {
		return err
	}
	return step.Do(ctx, step.File, "chmod", func() error { return unix.Chmod(dir, r.Mode) })
}

// between reports that have lies on the way from a fresh root to the wanted
// one: owner first, then mode.
func between(have, want Root) bool {
	return have == freshRoot || have == Root{UID: want.UID, GID: want.GID, Mode: freshRoot.Mode}
}
