// Package minsize knows which filesystems the node side can make, and the
// smallest volume each of them fits on. It imports nothing, so that the
// controller can refuse an impossible size before a volume exists.
package minsize

const mib = 1 << 20

// minBytes is the smallest device on which mkfs, with the arguments of
// pkg/mount, makes a filesystem that has a journal and can be mounted.
//
// ext: mke2fs leaves the journal out below 2048 blocks (lib/ext2fs,
// ext2fs_default_journal_size), here of 4 KiB. xfs: mkfs.xfs since 5.19
// refuses less than 300 MiB (mkfs/xfs_mkfs.c, validate_supported).
var minBytes = map[string]int64{
	"ext3": 8 * mib,
	"ext4": 8 * mib,
	"xfs":  300 * mib,
}

// MinBytes returns the smallest size in bytes for a filesystem type, and false
// for a type that is not known.
func MinBytes(fsType string) (int64, bool) {
	n, ok := minBytes[fsType]
	return n, ok
}

// Known reports whether the node side can make this filesystem.
func Known(fsType string) bool { return minBytes[fsType] > 0 }
