package storage

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// image is what a disk held when its snapshot was taken.
type image struct {
	fsType  string
	fsBytes int64
	data    []byte
}

func (d *Disk) image() image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return image{fsType: d.fsType, fsBytes: d.fsBytes, data: slices.Clone(d.data)}
}

func (d *Disk) load(i image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fsType, d.fsBytes, d.data = i.fsType, i.fsBytes, slices.Clone(i.data)
}

// Snapshot implements volume.ZFS: what is on the disks is kept.
func (z ZFS) Snapshot(ctx context.Context, s zfs.SnapshotSpec) error {
	err := z.ZFS.Snapshot(ctx, s)
	if err == nil {
		z.host.keepImages(s.Names)
	}
	return err
}

// Clone implements volume.ZFS.
func (z ZFS) Clone(ctx context.Context, snapshot string, s zfs.Spec) error {
	err := z.ZFS.Clone(ctx, snapshot, s)
	if err == nil && s.VolumeBytes > 0 {
		z.host.addDisk(s.Name, s.VolumeBytes)
		z.host.loadImage(snapshot, s.Name)
	}
	return err
}

// Copy implements volume.ZFS.
func (z ZFS) Copy(ctx context.Context, snapshot string, s zfs.Spec) error {
	err := z.ZFS.Copy(ctx, snapshot, s)
	if err == nil && s.VolumeBytes > 0 {
		z.host.addDisk(s.Name, s.VolumeBytes)
		z.host.loadImage(snapshot, s.Name)
	}
	return err
}

// DropCopy implements volume.ZFS.
func (z ZFS) DropCopy(ctx context.Context, dataset string) error {
	err := z.ZFS.DropCopy(ctx, dataset)
	if part := zfs.PartialName(dataset); err == nil && z.host.disk(part) {
		z.host.moveDisk(part, "")
	}
	return err
}

func (h *Host) keepImages(snapshots []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, full := range snapshots {
		dataset, _, _ := strings.Cut(full, "@")
		if d := h.disks[dataset]; d != nil {
			h.images[full] = d.image()
		}
	}
}

func (h *Host) loadImage(snapshot, zvol string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.disks[zvol]; d != nil {
		d.load(h.images[snapshot])
	}
}

// moveImages follows the rename of a zvol or of one snapshot.
func (h *Host) moveImages(from, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	moved := map[string]image{}
	for full, i := range h.images {
		if rest, ok := strings.CutPrefix(full, from); ok && (rest == "" || rest[0] == '@') {
			moved[to+rest] = i
			delete(h.images, full)
		}
	}
	for full, i := range moved {
		h.images[full] = i
	}
}
