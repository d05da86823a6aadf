package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// ErrorCount is how many errors an ext filesystem that is mounted from the device
// has met since e2fsck(8) last looked at it (kernel, Documentation/ABI/testing/
// sysfs-fs-ext4). Other filesystems count none. It asks no disk.
func (f *Filesystems) ErrorCount(major, minor int) (int64, error) {
	device, err := filepath.EvalSymlinks(filepath.Join(f.sys, "dev/block", fmt.Sprintf("%d:%d", major, minor)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the disk is gone, and with it what is known of it
	}
	if err != nil {
		return 0, fault.New(fault.Unavailable, "%w", err)
	}
	text, err := os.ReadFile(filepath.Join(f.sys, "fs/ext4", filepath.Base(device), "errors_count"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fault.New(fault.Unavailable, "%w", err)
	}
	count, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fault.New(fault.Unavailable, "the error count of device %d:%d: %w", major, minor, err)
	}
	return count, nil
}
