package volume

import (
	"context"
	"errors"
	"strconv"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// ExpandRequest asks for a larger volume.
type ExpandRequest struct {
	VolumeID string
	Size     Range
	// Capability is how the volume is used; nil where the caller does not say.
	Capability *access.Capability
}

// Expand makes a volume as large as required, published or not, and returns its
// size in bytes and whether the node that uses it has its part to do. A volume
// that is large enough already is a success.
//
// Nothing is done to the export: a quota is what the NFS server shows at once,
// and LIO's iblock asks the zvol for its size at every READ CAPACITY and for
// every bounds check (iblock_get_blocks in drivers/target/target_core_iblock.c).
// An initiator asks again when the node rescans the disk.
//
// Errors: fault.Range when the range does not hold today's size or a larger
// one; fault.Exhausted when a thick volume finds no room, and then it is as it
// was.
func (s *Service) Expand(ctx context.Context, r ExpandRequest) (bytes int64, node bool, err error) {
	id, err := s.parse(r.VolumeID)
	if err != nil {
		return 0, false, err
	}
	if err := r.Size.check(); err != nil {
		return 0, false, err
	}
	if r.Size == (Range{}) {
		return 0, false, fault.New(fault.Invalid, "the capacity range is empty: set required_bytes or limit_bytes")
	}
	var size int64 // not results: the operation may outlive this call
	var protocol string
	err = s.lock(ctx, "ControllerExpandVolume", id, func(ctx context.Context) error {
		rec, above, err := s.findWithParent(ctx, id)
		if err != nil {
			return err
		}
		if r.Capability != nil {
			if err := checkCapability(rec.params.Protocol, *r.Capability); err != nil {
				return err
			}
		}
		protocol = rec.params.Protocol
		size, err = s.expand(ctx, rec, above, r.Size)
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return size, protocol == ISCSI, nil
}

// expand brings a volume's size to the range, and a thick volume's reservation
// to its size, which a call that was cut off may have left behind.
func (s *Service) expand(ctx context.Context, r *record, above zfs.Dataset, size Range) (int64, error) {
	bytes, err := r.expanded(size)
	if err != nil {
		return 0, err
	}
	list := sizeSettings(r.params, bytes)
	if bytes == r.sizeBytes {
		if list = r.reserve(list); len(list) == 0 {
			return bytes, nil
		}
	}
	if room, ok := roomFor(r.dataset, above); ok && !r.params.Thin && more(r.dataset, bytes) > room {
		return 0, fault.New(fault.Exhausted, "expand volume %s to %d bytes: %d more are to be reserved, and %s has %d left",
			r.id, bytes, more(r.dataset, bytes), above.Name, room)
	}
	if err := s.cfg.ZFS.SetAll(ctx, r.dataset.Name, list); err != nil {
		return 0, s.shrinkBack(ctx, r, bytes, err)
	}
	return bytes, nil
}

// expanded is the size that a volume of today's size gets.
func (r *record) expanded(size Range) (int64, error) {
	if size.RequiredBytes <= r.sizeBytes {
		if size.holds(r.sizeBytes) {
			return r.sizeBytes, nil
		}
		return 0, fault.New(fault.Range, "volume %s has %d bytes, more than the limit of %d: a volume cannot shrink", r.id, r.sizeBytes, size.LimitBytes)
	}
	if size.RequiredBytes > MaxBytes {
		return 0, fault.New(fault.Range, "%d bytes are more than the %d that a volume can have", size.RequiredBytes, MaxBytes)
	}
	block := max(r.dataset.Bytes("volblocksize"), 1)
	bytes := roundUp(size.RequiredBytes, block)
	if !size.holds(bytes) {
		return 0, fault.New(fault.Range, "the smallest possible size is %d bytes (a multiple of %d), which is above the limit of %d", bytes, block, size.LimitBytes)
	}
	return bytes, nil
}

// reserve leaves of the settings of a size that the volume has what is not so
// yet. What a zvol has to reserve only ZFS can say.
func (r *record) reserve(list []zfs.Setting) []zfs.Setting {
	var rest []zfs.Setting
	for _, s := range list {
		if s.Name == "refreservation" && r.dataset.Bytes(s.Name) != parseBytes(s.Value) {
			rest = append(rest, s)
		}
	}
	return rest
}

// parseBytes reads a number of bytes; -1 for what is none.
func parseBytes(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// shrinkBack undoes an expansion that ZFS has refused, for what is left of it:
// `zfs set` of several properties is not atomic. The new size was there for a
// moment only, in which no node has looked for it. Any other failure proves
// nothing about what was set, and is left to the repeat of the call.
func (s *Service) shrinkBack(ctx context.Context, r *record, bytes int64, cause error) error {
	refused := describe(cause, "expand volume %s to %d bytes", r.id, bytes)
	switch {
	case errors.Is(cause, zfs.ErrBadValue): // a quota that is less than what is used
		refused = fault.New(fault.Range, "expand volume %s to %d bytes: %w", r.id, bytes, cause)
	case !errors.Is(cause, zfs.ErrNoSpace):
		return refused
	}
	if err := s.cfg.ZFS.SetAll(ctx, r.dataset.Name, r.sizeBefore()); err != nil {
		return fault.New(fault.Kind(refused), "%w; what was set of it could not be put back (%s): repeat the call", refused, err)
	}
	return refused
}

// sizeBefore are the settings of the size that the volume had before this call,
// the reservation first, since none may be above its quota. A thick filesystem
// whose quota is ahead of its reservation was cut off in between: the
// reservation is its size.
func (r *record) sizeBefore() []zfs.Setting {
	reserved, size := r.dataset.Bytes("refreservation"), r.sizeBytes
	before := []zfs.Setting{}
	if !r.params.Thin {
		before = append(before, zfs.Setting{Name: "refreservation", Value: strconv.FormatInt(reserved, 10)})
	}
	if r.dataset.Type() == zfs.Volume {
		return append(before, zfs.Setting{Name: "volsize", Value: strconv.FormatInt(size, 10)})
	}
	if !r.params.Thin && reserved > 0 {
		size = min(size, reserved)
	}
	return append(before, zfs.Setting{Name: "refquota", Value: strconv.FormatInt(size, 10)})
}

// more is how many bytes a thick volume of that size takes from its parent that
// it does not take now, without a zvol's metadata.
func more(d zfs.Dataset, bytes int64) int64 {
	own := d.Bytes("usedbydataset")
	return max(bytes, own) - max(d.Bytes("refreservation"), own)
}

// roomFor is what a dataset can take from its parent; false where quotas and
// reservations of somebody else's make it ZFS' alone to say.
func roomFor(d, above zfs.Dataset) (int64, bool) {
	if above.Bytes("refquota") > 0 || d.Bytes("reservation") > 0 {
		return 0, false
	}
	return above.Bytes("available") - above.Bytes("usedbyrefreservation"), true
}
