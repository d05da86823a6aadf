package volume

import (
	"sort"
	"strconv"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount/minsize"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// The bounds of a volume's size in bytes.
const (
	DefaultBytes int64 = 1 << 30
	MinBytes     int64 = 1 << 20
	MaxBytes     int64 = 1 << 50
)

// Range is the size that is asked for, in bytes; zero leaves a bound open.
type Range struct{ RequiredBytes, LimitBytes int64 }

// check refuses what no volume could satisfy.
func (r Range) check() error {
	switch {
	case r.RequiredBytes < 0 || r.LimitBytes < 0:
		return fault.New(fault.Invalid, "a size must not be negative: required %d, limit %d", r.RequiredBytes, r.LimitBytes)
	case r.LimitBytes > 0 && r.RequiredBytes > r.LimitBytes:
		return fault.New(fault.Invalid, "required %d bytes are more than the limit of %d", r.RequiredBytes, r.LimitBytes)
	}
	return nil
}

// holds reports whether a volume of that size satisfies the range.
func (r Range) holds(bytes int64) bool {
	return bytes >= r.RequiredBytes && (r.LimitBytes == 0 || bytes <= r.LimitBytes)
}

// sizeFor returns the size that a volume gets: what is required, at least the
// minimum of its filesystems, rounded up to the block; without a requirement
// the default, as far as the limit allows it. fault.Range when the limit cannot
// be met.
func sizeFor(p params, caps []access.Capability, r Range) (int64, error) {
	least, why := p.smallest(caps)
	block := p.blockBytes()
	if r.RequiredBytes > MaxBytes {
		return 0, fault.New(fault.Range, "%d bytes are more than the %d that a volume can have", r.RequiredBytes, MaxBytes)
	}
	// With a limit that has room for it the minimum is in the range.
	if r.RequiredBytes > 0 && r.RequiredBytes < least && r.LimitBytes < least && why != anyVolume {
		return 0, fault.New(fault.Range, "%d bytes are too small: %s needs at least %d", r.RequiredBytes, why, least)
	}
	size := roundUp(max(r.RequiredBytes, least), block)
	if r.RequiredBytes == 0 {
		size = max(size, DefaultBytes)
		if r.LimitBytes > 0 {
			size = min(size, max(r.LimitBytes/block*block, least))
		}
	}
	if !r.holds(size) {
		return 0, fault.New(fault.Range, "the smallest possible size is %d bytes (a multiple of %d, at least %d for %s), which is above the limit of %d",
			size, block, least, why, r.LimitBytes)
	}
	return size, nil
}

// anyVolume is what has the smallest minimum.
const anyVolume = "a volume"

// smallest is the least that the volume's filesystems need, rounded up to the
// block, and what needs it.
func (p params) smallest(caps []access.Capability) (int64, string) {
	least, why := MinBytes, anyVolume
	if p.Protocol == ISCSI {
		for _, c := range caps {
			if c.Type != access.Mount {
				continue
			}
			if n, _ := minsize.MinBytes(p.fsTypeOf(c)); n > least {
				least, why = n, p.fsTypeOf(c)
			}
		}
	}
	return roundUp(least, p.blockBytes()), why
}

// largest is the largest volume that can be made where so many bytes are
// available: a thick one reserves what it may need.
func (p params) largest(available int64) int64 {
	switch {
	case p.Thin:
		return MaxBytes
	case p.Protocol == NFS:
		return min(available, MaxBytes)
	}
	block := p.blockBytes()
	copies, _ := strconv.ParseInt(p.ZFS["copies"], 10, 64)
	// The smallest number of blocks that does not fit any more.
	blocks := sort.Search(int(min(available, MaxBytes)/block), func(n int) bool {
		return zvolReservation(int64(n+1)*block, block, max(copies, 1)) > available
	})
	return int64(blocks) * block
}

// zvolReservation is what ZFS reserves for a thick zvol: its data and its
// metadata, the latter once more often (zvol_volsize_to_reservation in
// libzfs_dataset.c). On raidz, where small blocks take more than their size, ZFS
// reserves more.
func zvolReservation(bytes, block, copies int64) int64 {
	const (
		indirectBytes = 128 << 10
		pointers      = 1 << 10 // in one indirect block
		maxCopies     = 3
	)
	metadata := int64(7) // the dnode's own levels
	for n := bytes / block; n > 1; {
		n = (n + pointers - 1) / pointers
		metadata += n
	}
	return bytes*copies + metadata*indirectBytes*min(copies+1, maxCopies)
}

// fsTypeOf is the filesystem that a capability gets on this volume.
func (p params) fsTypeOf(c access.Capability) string {
	if c.FSType != "" {
		return c.FSType
	}
	return p.FSType
}

// blockBytes is what sizes are a multiple of: zfs refuses a volsize that is no
// multiple of the volblocksize, while a quota may be any number.
func (p params) blockBytes() int64 {
	if p.Protocol == ISCSI {
		return parseBlockSize(p.ZFS["volblocksize"])
	}
	return 1
}

func roundUp(n, block int64) int64 { return (n + block - 1) / block * block }

// sizeSpec turns (protocol, thin or thick, size) into everything that ZFS must
// be told about the size.
func sizeSpec(p params, bytes int64) zfs.Spec {
	if p.Protocol == ISCSI {
		return zfs.Spec{VolumeBytes: bytes, Thin: p.Thin}
	}
	return zfs.Spec{Properties: sizeSettings(p, bytes)}
}

// sizeSettings is sizeSpec for a dataset that exists. The size comes first,
// since a reservation above the quota is refused. A zvol reserves what it needs
// with its metadata, which only ZFS can reckon (refreservation in zfsprops(7));
// without a word `zfs set volsize` moves a reservation along only if it is
// exactly that.
func sizeSettings(p params, bytes int64) []zfs.Setting {
	n := strconv.FormatInt(bytes, 10)
	if p.Protocol == ISCSI {
		list := []zfs.Setting{{Name: "volsize", Value: n}}
		if !p.Thin {
			list = append(list, zfs.Setting{Name: "refreservation", Value: "auto"})
		}
		return list
	}
	list := []zfs.Setting{{Name: "refquota", Value: n}}
	if !p.Thin {
		list = append(list, zfs.Setting{Name: "refreservation", Value: n})
	}
	return list
}

// sizeOf reads a volume's size back.
func sizeOf(d zfs.Dataset) int64 {
	if d.Type() == zfs.Volume {
		return d.Bytes("volsize")
	}
	return d.Bytes("refquota")
}
