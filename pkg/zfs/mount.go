package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// serverMountFlags keep what a client stores from becoming a privilege on the
// storage host. The system call does not read the dataset's own setuid,
// devices and atime properties.
const serverMountFlags = unix.MS_NOSUID | unix.MS_NODEV

// MountedAt returns where the filesystem is mounted on this host; false when
// it is not mounted.
func (c *Client) MountedAt(_ context.Context, dataset string) (string, bool, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return "", false, fmt.Errorf("read the mount table: %w", err)
	}
	for _, m := range infos {
		if m.FsType == "zfs" && m.Source == dataset && m.Root == "/" {
			return m.MountPoint, true, nil
		}
	}
	return "", false, nil
}

// Mount mounts a filesystem at dir by the system call, which unlike `zfs
// mount` runs no exportfs. dir is made when it is missing; a directory with
// something in it is refused. atime is the dataset's property.
func (c *Client) Mount(_ context.Context, dataset, dir string, atime bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
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
	if err := unix.Mount(dataset, dir, "zfs", flags, "zfsutil"); err != nil {
		return &os.PathError{Op: "mount " + dataset + " at", Path: dir, Err: err}
	}
	return nil
}

// Unmount unmounts a filesystem by the system call and removes its empty
// mount point. ErrBusy while something has it open.
func (c *Client) Unmount(_ context.Context, dir string) error {
	if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return &causeError{cause: ErrBusy, err: &os.PathError{Op: "unmount", Path: dir, Err: err}}
		}
		return &os.PathError{Op: "unmount", Path: dir, Err: err}
	}
	if err := os.Remove(filepath.Clean(dir)); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// Root is the owner and mode of a filesystem's root directory.
type Root struct{ UID, GID, Mode uint32 }

// SetRoot gives a mounted filesystem's root its owner and mode, as long as it
// is how ZFS made it: empty, of root, 0755. A volume in use is left as its
// users have it.
func (c *Client) SetRoot(_ context.Context, dir string, r Root) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Uid != 0 || st.Gid != 0 || st.Mode&0o7777 != 0o755 || r == (Root{Mode: 0o755}) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return err
	}
	if err := os.Chown(dir, int(r.UID), int(r.GID)); err != nil {
		return err
	}
	return unix.Chmod(dir, r.Mode)
}

// emptyVolumeBytes is above what an untouched zvol refers to (its two ZAP
// objects) and below the smallest block that a write would add.
const emptyVolumeBytes = 8 << 10

// LooksEmpty reports that a dataset holds no data at all: a filesystem whose
// root is empty, a zvol that nothing was written to.
func (c *Client) LooksEmpty(ctx context.Context, d Dataset) (empty bool, err error) {
	if d.Type() == Volume {
		return d.Bytes("logicalreferenced") <= emptyVolumeBytes, nil
	}
	dir, mounted, err := c.MountedAt(ctx, d.Name)
	if err != nil {
		return false, err
	}
	if !mounted {
		if dir, err = os.MkdirTemp("", "tarn-look-"); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, os.Remove(dir)) }()
		if err := unix.Mount(d.Name, dir, "zfs", serverMountFlags|unix.MS_RDONLY, "zfsutil"); err != nil {
			return false, &os.PathError{Op: "mount " + d.Name + " at", Path: dir, Err: err}
		}
		defer func() { err = errors.Join(err, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)) }()
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0, err
}
