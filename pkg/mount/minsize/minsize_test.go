package minsize

import "testing"

func TestTableHoldsWhatIsKnown(t *testing.T) {
	for _, fsType := range []string{"ext3", "ext4", "xfs"} {
		n, ok := MinBytes(fsType)
		if !ok || n <= 0 || !Known(fsType) {
			t.Errorf("%s: %d, %v", fsType, n, ok)
		}
	}
	for _, fsType := range []string{"", "btrfs", "ext2", "EXT4", "nfs"} {
		if n, ok := MinBytes(fsType); ok || n != 0 || Known(fsType) {
			t.Errorf("%q is known with %d bytes", fsType, n)
		}
	}
}
