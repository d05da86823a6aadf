package mount

import (
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Filesystems makes, checks and grows the filesystems on block devices. It is
// safe for concurrent use; calls for one device are serialised by the caller.
type Filesystems struct {
	run *run.Runner
	// The rest asks the kernel, apart from tests.
	table, sys string
	number     func(device string) (major, minor int, ok bool)
	blocks     func(mountPath string) (uint64, error)
}

// NewFilesystems returns Filesystems that start their tools with r.
func NewFilesystems(r *run.Runner) *Filesystems {
	return &Filesystems{run: r, table: tablePath, sys: "/sys", number: deviceNumber, blocks: dataBlocks}
}

func checkDevice(device string) error {
	if !filepath.IsAbs(device) || strings.ContainsRune(device, 0) {
		return fault.New(fault.Invalid, "device %q is not an absolute path", device)
	}
	return nil
}
