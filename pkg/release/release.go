// Package release ends what keeps a volume from being unmounted or destroyed
// on the storage host and serves nobody any more. It never forces anything
// that somebody uses: what it must not end it names.
package release

import (
	"context"
	"net/netip"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Held names a volume that could not be unmounted or destroyed.
type Held struct {
	// Dir is where a filesystem is mounted; empty for a zvol.
	Dir string
	// Device is a zvol's path; empty for a filesystem.
	Device string
	// Alive are the addresses of nodes that may mount other volumes of this host
	// over NFS: their NFS state must not be ended as a whole.
	Alive []netip.Addr
}

// Runner starts children; *run.Runner is one.
type Runner interface {
	Run(ctx context.Context, c run.Cmd) ([]byte, error)
}

// Releaser works on this host.
type Releaser struct {
	run Runner
	// proc and sys are /proc and /sys.
	proc, sys string
}

// New returns a Releaser.
func New(r Runner) *Releaser { return &Releaser{run: r, proc: "/proc", sys: "/sys"} }

// Release ends NFS state that clients without a publication keep on a
// filesystem, what the kernel's export cache keeps of it, and LVM mappings that
// this host itself put on a zvol. It is for a volume that is exported no more.
// The error names what it could not end; it is fault.Unavailable when nobody
// uses the volume and only the kernel has not let go of it yet.
func (r *Releaser) Release(ctx context.Context, h Held) error {
	if h.Dir != "" {
		if err := r.nfsState(h.Dir, h.Alive); err != nil {
			return err
		}
		if err := r.exportCache(ctx, h.Dir); err != nil {
			return fault.New(fault.Unavailable, "%w", err)
		}
	}
	if h.Device != "" {
		return r.mappings(ctx, h.Device)
	}
	return nil
}
