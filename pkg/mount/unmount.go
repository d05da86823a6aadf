package mount

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// The first attempt at an NFS mount gets most of the caller's time, and this
// much when the caller sets no deadline.
const politeTimeout = 2 * time.Minute

// reserve is what is kept of the caller's time for the end of that attempt.
const reserve = 10 * time.Second

// Unmount takes away everything that is mounted at target, and verifies it in
// the mount table: neither a tool's success nor its failure is believed.
// Nothing mounted there is a success. No file or directory is removed or
// looked at.
//
// A dead NFS server does not keep a mount that nobody uses: the kernel takes it
// out of the table first, and writes back and says good-bye to the server then.
// That gets most of the time until ctx ends, since cutting it short can lose
// what a killed process has written, and is then given up.
//
// Errors: fault.Precondition when something still uses the mount; the
// context's error at the deadline.
func (m *Mounter) Unmount(ctx context.Context, target string) error {
	if !filepath.IsAbs(target) {
		return fault.New(fault.Invalid, "mount point %q is not an absolute path", target)
	}
	return m.unmountTo(ctx, target, 0)
}

func (m *Mounter) unmountTo(ctx context.Context, target string, keep int) error {
	for {
		mounts, err := m.At(ctx, target)
		if err != nil {
			return err
		}
		if len(mounts) <= keep {
			return nil
		}
		if err := m.unmountOne(ctx, mounts[len(mounts)-1], len(mounts)); err != nil {
			return err
		}
	}
}

// unmountOne takes away the topmost of count mounts at its target.
func (m *Mounter) unmountOne(ctx context.Context, top Info, count int) error {
	err := m.politely(ctx, top)
	if gone, tableErr := m.fewer(ctx, top.Target, count); tableErr != nil || gone {
		return tableErr
	}
	if err != nil && isNFS(top.FSType) && ctx.Err() == nil && !busy(err) {
		// umount2(2) with MNT_FORCE fails the requests that wait for the server.
		_, err = m.run.Run(ctx, run.Cmd{Tool: "umount", Args: []string{"--no-canonicalize", "--internal-only", "--force", top.Target}})
		if gone, tableErr := m.fewer(ctx, top.Target, count); tableErr != nil || gone {
			return tableErr
		}
	}
	switch {
	case err == nil:
		return fault.New(fault.Unavailable, "umount %s returned success, but it is still mounted", top.Target)
	case contextError(err):
		return err
	case busy(err):
		return fault.New(fault.Precondition, "%s is still in use: stop what uses it and repeat: %w", top.Target, err)
	}
	return fault.New(fault.Unavailable, "%w", err)
}

// politely asks as an administrator would. --no-canonicalize keeps umount(8)
// from looking at the mount point, which hangs when its server is dead.
func (m *Mounter) politely(ctx context.Context, top Info) error {
	if isNFS(top.FSType) {
		limit := politeTimeout
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			limit = left - min(reserve, left/4)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	_, err := m.run.Run(ctx, run.Cmd{Tool: "umount", Args: []string{"--no-canonicalize", top.Target}})
	return err
}

// fewer reports whether less than count mounts are at target. It is asked
// after the deadline too: a killed umount may have done its work.
func (m *Mounter) fewer(ctx context.Context, target string, count int) (bool, error) {
	now, err := m.At(context.WithoutCancel(ctx), target)
	return len(now) < count, err
}

func isNFS(fsType string) bool { return fsType == "nfs" || fsType == "nfs4" }

// busy matches what umount(8) and umount.nfs(8) say for EBUSY.
func busy(err error) bool {
	text := run.Stderr(err)
	return strings.Contains(text, "target is busy") || strings.Contains(text, "device is busy")
}
