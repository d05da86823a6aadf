package node

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Host is what else a node is asked.
type Host interface {
	// Alive asks the filesystem mounted at path, and its server or disk, to
	// answer. It ends with ctx even when they never do.
	Alive(ctx context.Context, path string) error
	// Usage asks the filesystem mounted at path how full it is. It ends with ctx
	// even when its server never answers.
	Usage(ctx context.Context, path string) (Usage, error)
	// SetReadOnly makes the kernel refuse or allow writes to a block device,
	// whoever opens it from then on.
	SetReadOnly(ctx context.Context, device string, readOnly bool) error
	// DeviceNumber returns the number of the block device node at path, which
	// lies in a devtmpfs or tmpfs. Anything but a block device is an error.
	DeviceNumber(path string) (major, minor int, err error)
	// BootID changes with each boot: device numbers hold for one boot.
	BootID() (string, error)
}

// Tools is the Host of a real node.
type Tools struct{ run *run.Runner }

// NewTools returns Tools that start their children with r.
func NewTools(r *run.Runner) *Tools { return &Tools{run: r} }

// Alive implements Host by two children, since neither question is enough: an
// NFS client answers the second from its cache, and XFS answers the first from
// memory when it has shut down.
func (t *Tools) Alive(ctx context.Context, path string) error {
	if _, err := t.run.Run(ctx, run.Cmd{Tool: "stat", Args: []string{"--file-system", "--format=%i", "--", path}}); err != nil {
		return err
	}
	_, err := t.run.Run(ctx, run.Cmd{Tool: "stat", Args: []string{"--format=%i", "--", path}})
	return err
}

// SetReadOnly implements Host. A disk that its target write-protects stays
// read-only whatever is set here.
func (t *Tools) SetReadOnly(ctx context.Context, device string, readOnly bool) error {
	flag := "--setrw"
	if readOnly {
		flag = "--setro"
	}
	if _, err := t.run.Run(ctx, run.Cmd{Tool: "blockdev", Args: []string{flag, device}}); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fault.New(fault.Unavailable, "whether %s can be written could not be set: %w", device, err)
	}
	return nil
}

// DeviceNumber implements Host. It looks at the node and never opens it.
func (t *Tools) DeviceNumber(path string) (major, minor int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, &os.PathError{Op: "stat", Path: path, Err: errors.New("not a block device")}
	}
	return int(unix.Major(st.Rdev)), int(unix.Minor(st.Rdev)), nil
}

// BootID implements Host; see random(4).
func (t *Tools) BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fault.New(fault.Unavailable, "the boot id cannot be read, is /proc mounted? %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
