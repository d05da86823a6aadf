package inprocess

import (
	"context"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/step"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// filesystems implements node.Filesystems.
type filesystems struct{ *Node }

func (f filesystems) disk(device string) (d *storage.Disk, readOnly bool, err error) {
	s := f.sessionAt(device)
	if s == nil {
		return nil, false, fault.New(fault.Unavailable, "%s is gone", device)
	}
	at, err := f.reach(s)
	if err != nil {
		return nil, false, fault.New(fault.Unavailable, "%s cannot be read: %w", device, err)
	}
	return f.storage.Disk(at.Device), at.ReadOnly || s.readOnly, nil
}

func (f filesystems) Probe(ctx context.Context, device string) (mount.Content, error) {
	ended, err := step.Begin(ctx, step.Child, "blkid")
	if err != nil {
		return mount.Content{}, err
	}
	defer ended()
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _, err := f.disk(device)
	switch {
	case err != nil:
		return mount.Content{}, err
	case d.Blank():
		return mount.Content{Blank: true, What: "nothing"}, nil
	case d.FSType() == "":
		return mount.Content{What: "unknown data"}, nil
	}
	return mount.Content{FSType: d.FSType(), What: "a filesystem of type " + d.FSType()}, nil
}

func (f filesystems) Format(ctx context.Context, device, fsType string, _ []string, again bool) error {
	ended, err := step.Begin(ctx, step.Child, "mkfs")
	if err != nil {
		return err
	}
	defer ended()
	f.mu.Lock()
	defer f.mu.Unlock()
	d, readOnly, err := f.disk(device)
	if err != nil {
		return err
	}
	if err := f.unused(device); err != nil {
		return err
	}
	if readOnly || !d.Blank() && !again {
		f.violation("mkfs on %s, which is read-only or not blank", device)
		return fault.New(fault.Precondition, "%s is not formatted", device)
	}
	d.Format(fsType)
	return nil
}

// unused refuses a device that is mounted, as mkfs and fsck do.
func (f filesystems) unused(device string) error {
	s := f.sessionAt(device)
	for _, b := range f.behind {
		if b.session == s && !b.node {
			f.violation("mkfs or fsck on %s, which is mounted", device)
			return fault.New(fault.Unavailable, "%s is mounted", device)
		}
	}
	return nil
}

func (f filesystems) Check(ctx context.Context, device, _ string) error {
	ended, err := step.Begin(ctx, step.Child, "fsck")
	if err != nil {
		return err
	}
	defer ended()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, _, err := f.disk(device); err != nil {
		return err
	}
	return f.unused(device)
}

// Grow makes a filesystem as large as the node knows its disk to be.
func (f filesystems) Grow(ctx context.Context, device, mountPath string) (bool, error) {
	ended, err := step.Begin(ctx, step.Child, "grow")
	if err != nil {
		return false, err
	}
	defer ended()
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.top(mountPath)
	s := f.sessionAt(device)
	if !ok || s == nil || f.behind[i.ID].session != s {
		return false, fault.New(fault.Precondition, "%s is not mounted at %s", device, mountPath)
	}
	if f.readOnly(i) {
		return false, nil
	}
	d, _, err := f.disk(device)
	if err != nil {
		return false, err
	}
	grown := d.FSBytes() < s.sizeBytes
	d.GrowFS(s.sizeBytes)
	return grown, nil
}

func (f filesystems) SizeBytes(device string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessionAt(device)
	if s == nil {
		return 0, fault.New(fault.Unavailable, "%s is gone", device)
	}
	return s.sizeBytes, nil
}

// ErrorCount implements node.Filesystems: filesystems here meet none.
func (filesystems) ErrorCount(int, int) (int64, error) { return 0, nil }
