package node

import (
	"context"
	"slices"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// resizeTimeout is how long a disk may take to show a new size. A target shows
// it at once; several paths may differ for a moment.
const resizeTimeout = 10 * time.Second

// The interval between two looks at a disk.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// nfsRounding is how far below its quota a server may show an export: a ZFS
// filesystem counts in records, of at most this size unless that is raised.
const nfsRounding = 1 << 20

// ExpandRequest asks for a volume that has been expanded on its storage host to
// be used in its whole size.
type ExpandRequest struct {
	VolumeID string
	// Path is where the volume is staged or published.
	Path string
	// StagingPath may be empty.
	StagingPath string
	// Type is how the caller uses the volume; zero where it does not say.
	Type access.Type
	// RequiredBytes and LimitBytes bound the size; zero leaves a bound open.
	RequiredBytes, LimitBytes int64
}

func (r *ExpandRequest) check() error {
	if err := checkPlace(r.VolumeID, r.Path); err != nil {
		return err
	}
	if r.StagingPath != "" {
		if err := CheckPath("staging path", r.StagingPath); err != nil {
			return err
		}
	}
	switch {
	case r.RequiredBytes < 0 || r.LimitBytes < 0:
		return fault.New(fault.Invalid, "a size must not be negative: required %d, limit %d", r.RequiredBytes, r.LimitBytes)
	case r.LimitBytes > 0 && r.RequiredBytes > r.LimitBytes:
		return fault.New(fault.Invalid, "required %d bytes are more than the limit of %d", r.RequiredBytes, r.LimitBytes)
	}
	return nil
}

// Expand makes the node see the size that the volume has on its storage host,
// and its filesystem as large as that, while both are in use. It returns the
// volume's size as it is then: the disk's, or what the NFS server shows. A
// volume that is large enough already is a success.
//
// Errors: fault.NotFound when the volume is not staged or published at the path;
// fault.Range when the volume is smaller than what is required, or larger than
// the limit; fault.Precondition when its filesystem is mounted read-only, which
// cannot be grown; fault.Unavailable when its session is lost.
func (s *Service) Expand(ctx context.Context, r ExpandRequest) (sizeBytes int64, err error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	var size int64
	err = s.do(ctx, "NodeExpandVolume", r.VolumeID, r.Path, s.server(r.VolumeID), func(ctx context.Context) (err error) {
		size, err = s.expand(ctx, &r)
		return err
	})
	if err != nil {
		return 0, err // fn may still be writing
	}
	return size, nil
}

func (s *Service) expand(ctx context.Context, r *ExpandRequest) (int64, error) {
	p, err := s.place(ctx, r.VolumeID, r.Path)
	if err != nil {
		return 0, err
	}
	if err := s.notAnothersStaging(r); err != nil {
		return 0, err
	}
	if r.Type != 0 && r.Type.String() != p.record.Type {
		return 0, fault.New(fault.Invalid, "volume %s is used as %s at %s, not as %s", r.VolumeID, p.record.Type, r.Path, r.Type)
	}
	if p.nfs() {
		u, err := s.usage(ctx, p)
		if err == nil && u.Bytes.Total+nfsRounding < r.RequiredBytes {
			err = fault.New(fault.Range, "the server shows volume %s with %d bytes and %d are required: expand it on the controller first, or free space in its pool",
				r.VolumeID, u.Bytes.Total, r.RequiredBytes)
		}
		return u.Bytes.Total, err
	}
	d, err := s.attachedDisk(ctx, p)
	if err != nil {
		return 0, err
	}
	size, err := s.seeSize(ctx, p.record, d, r.RequiredBytes)
	if err != nil {
		return 0, err
	}
	if r.LimitBytes > 0 && size > r.LimitBytes {
		return 0, fault.New(fault.Range, "volume %s has %d bytes already, which is above the limit of %d: it cannot shrink", r.VolumeID, size, r.LimitBytes)
	}
	if p.record.block() {
		return size, nil
	}
	return size, s.growMounted(ctx, p.record, d)
}

// notAnothersStaging refuses a staging path where only another volume is staged.
// One where nothing is staged is not refused: it changes with an upgrade of the
// orchestrator.
func (s *Service) notAnothersStaging(r *ExpandRequest) error {
	if r.StagingPath == "" {
		return nil
	}
	at, err := s.records.stagesAt(r.StagingPath)
	if err != nil || len(at) == 0 || slices.ContainsFunc(at, func(o *stageRecord) bool { return o.VolumeID == r.VolumeID }) {
		return err
	}
	return nowhere(r.VolumeID, r.StagingPath, "volume "+at[0].VolumeID+" is staged there")
}

// seeSize makes the kernel read the disk's size again, until it has the required
// bytes, and returns it.
func (s *Service) seeSize(ctx context.Context, r *stageRecord, d attach.Device, required int64) (int64, error) {
	size, err := s.Filesystems.SizeBytes(d.Path)
	if err != nil || required > 0 && size >= required {
		return size, err
	}
	a, err := s.attacher(r.Protocol)
	if err != nil {
		return 0, err
	}
	end := time.Now().Add(s.resizeTimeout)
	for interval := firstLook; ; interval = min(2*interval, lastLook) {
		if err := a.Rescan(ctx, r.Target); err != nil {
			return 0, err
		}
		if size, err = s.Filesystems.SizeBytes(d.Path); err != nil || size >= required {
			return size, err
		}
		if time.Now().Add(interval).After(end) {
			return 0, fault.New(fault.Range, "the disk of volume %s has %d bytes and %d are required: expand it on the controller first",
				r.VolumeID, size, required)
		}
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
	}
}

// growMounted grows the volume's filesystem, through whichever of its mounts can
// be written.
func (s *Service) growMounted(ctx context.Context, r *stageRecord, d attach.Device) error {
	table, err := s.Mounter.Mounts(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(table, func(i mount.Info) bool {
		return s.shows(i, r) && i.Root == "/" && !i.ReadOnly() && !readOnlyNow(i)
	})
	if at < 0 {
		return fault.New(fault.Precondition, "the filesystem of volume %s is mounted read-only and cannot be grown: stage it where it can be written", r.VolumeID)
	}
	return s.growAt(ctx, r.VolumeID, d, table[at].Target)
}

// growAt makes the filesystem that is mounted at path fill its disk.
func (s *Service) growAt(ctx context.Context, volumeID string, d attach.Device, path string) error {
	grown, err := s.Filesystems.Grow(ctx, d.Path, path)
	if err == nil && grown {
		s.Log.WithField("volume", volumeID).Info("filesystem grown to its disk")
	}
	return err
}
