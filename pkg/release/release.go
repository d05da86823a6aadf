// Package release ends what keeps a volume from being unmounted or destroyed
// on the storage host and serves nobody any more. It never forces anything
// that somebody uses: what it must not end it names.
package release

import (
	"context"
	"errors"
	"net/netip"

	"github.com/tarn-csi/tarn/pkg/run"
)

// Held names a volume that could not be unmounted or destroyed.
type Held struct {
	// Dir is where a filesystem is mounted; empty for a zvol.
	Dir string
	// Device is a zvol's path; empty for a filesystem.
	Device string
	// Alive are the addresses of nodes that have other publications on this
	// host: their NFS state must not be ended as a whole.
	Alive []netip.Addr
}

// Releaser works on this host.
type Releaser struct {
	run *run.Runner
	// proc and sys are /proc and /sys.
	proc, sys string
}

// New returns a Releaser.
func New(r *run.Runner) *Releaser { return &Releaser{run: r, proc: "/proc", sys: "/sys"} }

// Release ends NFS state that clients without a publication keep on a
// filesystem, and LVM mappings that this host itself put on a zvol. The error
// names what it could not end.
func (r *Releaser) Release(ctx context.Context, h Held) error {
	var errs []error
	if h.Dir != "" {
		errs = append(errs, r.nfsState(h.Dir, h.Alive))
	}
	if h.Device != "" {
		errs = append(errs, r.mappings(ctx, h.Device))
	}
	return errors.Join(errs...)
}
