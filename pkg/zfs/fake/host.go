package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tarn-csi/tarn/pkg/release"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Available implements volume.Host.
func (f *ZFS) Available(ctx context.Context, dataset string) (int64, error) {
	return do(ctx, f, "available", dataset, func() (int64, error) {
		n, err := f.findParent(dataset)
		if err != nil {
			return 0, err
		}
		return f.available(n), nil
	})
}

type mounted struct {
	dir string
	ok  bool
}

// MountedAt implements volume.Host.
func (f *ZFS) MountedAt(ctx context.Context, dataset string) (string, bool, error) {
	m, err := do(ctx, f, "mountedat", dataset, func() (mounted, error) {
		n := f.nodes[dataset]
		if n == nil || n.mountedAt == "" {
			return mounted{}, nil
		}
		return mounted{n.mountedAt, true}, nil
	})
	return m.dir, m.ok, err
}

// Mount implements volume.Host: the system call, and what package zfs checks
// before it.
func (f *ZFS) Mount(ctx context.Context, dataset, dir string, atime bool) error {
	return do0(ctx, f, "mount", dataset, func() error {
		n := f.nodes[dataset]
		var errno, cause error
		switch {
		case n == nil || n.snapshot:
			errno, cause = syscall.ENOENT, zfs.ErrNotExist
		case n.typ != zfs.Filesystem:
			errno = syscall.EINVAL
		case f.keyMissing(n):
			errno, cause = syscall.EACCES, zfs.ErrNoKey
		case n.mountedAt != "" || f.mountAt(dir) != nil:
			errno = syscall.EBUSY
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if errno == nil && len(entries) > 0 {
			return fmt.Errorf("%s is not empty: %s is not mounted over it", dir, dataset)
		}
		if errno != nil {
			return refused(cause, &os.PathError{Op: "mount " + dataset + " at", Path: dir, Err: errno})
		}
		n.atime = atime
		return f.mount(n, dir)
	})
}

// Remount implements volume.Host.
func (f *ZFS) Remount(ctx context.Context, dir string, atime bool) error {
	return do0(ctx, f, "remount", dir, func() error {
		n := f.mountAt(dir)
		if n == nil {
			return &os.PathError{Op: "remount", Path: dir, Err: syscall.EINVAL}
		}
		n.atime = atime
		return nil
	})
}

// Atime reports whether a filesystem is mounted so that reads are noted.
func (f *ZFS) Atime(dataset string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[dataset]
	return n != nil && n.mountedAt != "" && n.atime
}

// refused is an error of the system call with the cause that package zfs adds.
func refused(cause, err error) error {
	if cause == nil {
		return err
	}
	return &errno{cause: cause, err: err}
}

type errno struct{ cause, err error }

func (e *errno) Error() string   { return e.err.Error() }
func (e *errno) Unwrap() []error { return []error{e.cause, e.err} }

// mount moves the files to the mount point.
func (f *ZFS) mount(n *node, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// An empty directory gives way; one with something in it does not.
	if err := errors.Join(os.Remove(dir), os.Rename(n.content, dir)); err != nil {
		return err
	}
	n.mountedAt = filepath.Clean(dir)
	return nil
}

// mountAt returns what is mounted at a directory.
func (f *ZFS) mountAt(dir string) *node {
	for _, n := range f.nodes {
		if n.mountedAt != "" && n.mountedAt == filepath.Clean(dir) {
			return n
		}
	}
	return nil
}

// Unmount implements volume.Host. The mount point is removed when it is empty.
func (f *ZFS) Unmount(ctx context.Context, dir string) error {
	return do0(ctx, f, "unmount", dir, func() error {
		n := f.mountAt(dir)
		if n == nil {
			return &os.PathError{Op: "unmount", Path: dir, Err: syscall.EINVAL}
		}
		if n.busy() || f.coversMount(n) {
			return &Error{Cause: zfs.ErrBusy, Text: "unmount " + dir + ": device or resource busy"}
		}
		return f.unmount(n)
	})
}

func (f *ZFS) coversMount(n *node) bool {
	for _, m := range f.nodes {
		if m != n && strings.HasPrefix(m.mountedAt, n.mountedAt+"/") {
			return true
		}
	}
	return false
}

func (f *ZFS) unmount(n *node) error {
	if err := os.Rename(n.mountedAt, n.content); err != nil {
		return err
	}
	n.mountedAt = ""
	return nil
}

// SetRoot implements volume.Host; RootOf returns what was set.
func (f *ZFS) SetRoot(ctx context.Context, dir string, r zfs.Root) error {
	return do0(ctx, f, "setroot", dir, func() error {
		n := f.mountAt(dir)
		if n == nil {
			return &os.PathError{Op: "stat", Path: dir, Err: syscall.ENOENT}
		}
		entries, err := os.ReadDir(dir)
		fresh := zfs.Root{Mode: 0o755}
		if err != nil || len(entries) > 0 || n.root != fresh && n.root != (zfs.Root{UID: r.UID, GID: r.GID, Mode: fresh.Mode}) {
			return err
		}
		n.root = r
		return nil
	})
}

// LooksEmpty implements volume.Host.
func (f *ZFS) LooksEmpty(ctx context.Context, d zfs.Dataset) (bool, error) {
	return do(ctx, f, "looksempty", d.Name, func() (bool, error) {
		n, err := f.find(d.Name)
		if err != nil {
			return false, err
		}
		if n.typ == zfs.Volume {
			return n.data <= emptyVolume, nil
		}
		if f.keyMissing(n) {
			return false, refused(zfs.ErrNoKey, &os.PathError{Op: "mount " + d.Name + " at", Path: "/tmp", Err: syscall.EACCES})
		}
		dir := n.mountedAt
		if dir == "" {
			dir = n.content
		}
		entries, err := os.ReadDir(dir)
		return len(entries) == 0, err
	})
}

// Release implements volume.Host.
func (f *ZFS) Release(ctx context.Context, h release.Held) error {
	name := h.Dir
	if name == "" {
		name = h.Device
	}
	return do0(ctx, f, "release", name, func() error {
		n := f.nodes[strings.ReplaceAll(strings.TrimPrefix(h.Device, "/dev/zvol/"), "+", " ")]
		if h.Dir != "" {
			n = f.mountAt(h.Dir)
		}
		if n == nil {
			return nil
		}
		var errs []error
		for _, hold := range slices.Clone(n.holds) {
			switch hold.kind {
			case heldByNFS:
				if slices.Contains(h.Alive, hold.client) {
					errs = append(errs, fmt.Errorf("NFS client %s still has %q open: stop what uses it there", hold.client, hold.file))
					continue
				}
			case heldByLVM:
				if hold.open {
					errs = append(errs, fmt.Errorf("the logical volume %s on %s is in use", hold.file, n.name))
					continue
				}
			default:
				continue // nothing that Release knows of
			}
			n.drop(hold)
		}
		return errors.Join(errs...)
	})
}

// busy reports whether something has the dataset open.
func (n *node) busy() bool { return len(n.holds) > 0 || time.Now().Before(n.freshTill) }
