package storage

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
)

var errNoDevice = errors.New("no such device")

// ZFS is the pool as the driver sees it, joined with the rest of the host: zvols
// have devices, and what is exported is busy.
type ZFS struct {
	*zfsfake.ZFS
	host *Host
}

// Create implements volume.ZFS.
func (z ZFS) Create(ctx context.Context, s zfs.Spec) error {
	err := z.ZFS.Create(ctx, s)
	if err == nil && s.VolumeBytes > 0 {
		z.host.addDisk(s.Name, s.VolumeBytes)
	}
	return err
}

// Destroy implements volume.ZFS.
func (z ZFS) Destroy(ctx context.Context, name string) error {
	if z.host.claimed(name) {
		return &zfsfake.Error{Cause: zfs.ErrBusy, Text: "cannot destroy '" + name + "': dataset is busy"}
	}
	err := z.ZFS.Destroy(ctx, name)
	if err == nil {
		z.host.moveDisk(name, "")
	}
	return err
}

// Rename implements volume.ZFS.
func (z ZFS) Rename(ctx context.Context, from, to string) error {
	err := z.ZFS.Rename(ctx, from, to)
	if err == nil {
		z.host.moveImages(from, to)
	}
	if err == nil && z.host.disk(from) {
		z.host.moveDisk(from, to)
	}
	return err
}

// SetAll implements volume.ZFS. A zvol's device has its new size at once.
func (z ZFS) SetAll(ctx context.Context, name string, list []zfs.Setting) error {
	err := z.ZFS.SetAll(ctx, name, list)
	z.host.resizeDisk(name, z.VolumeBytes(name))
	return err
}

// Unmount implements volume.Host.
func (z ZFS) Unmount(ctx context.Context, dir string) error {
	if z.host.exported(dir) {
		return &zfsfake.Error{Cause: zfs.ErrBusy, Text: "unmount " + dir + ": device or resource busy"}
	}
	return z.ZFS.Unmount(ctx, dir)
}

func (h *Host) disk(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.disks[name] != nil
}

// mountedDir reports whether a dataset of the pool is mounted at a directory.
func (h *Host) mountedDir(path string) bool {
	name := strings.TrimPrefix(path, h.dir+"/")
	if !slices.Contains(h.Pool.Names(), name) || h.Pool.Content(name) != path {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
