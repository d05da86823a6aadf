// Package mount looks at block devices, makes filesystems on them, checks and
// grows them, and mounts, binds and unmounts. Every tool is a child of pkg/run,
// so all of it ends with the caller's deadline, and what a tool claims is
// verified in the mount table.
//
// It stands on k8s.io/mount-utils for argument and bind option building and for
// growing. It does not decide when to format or what to mount where: pkg/node
// does. It removes no directory and no file.
package mount

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Mounter mounts and unmounts. It is safe for concurrent use.
type Mounter struct {
	run   *run.Runner
	table string
}

// New returns a Mounter that starts its tools with r.
func New(r *run.Runner) *Mounter { return &Mounter{run: r, table: tablePath} }

// Mount mounts source at the directory target and verifies it in the mount
// table. The sensitive options reach mount(8) but no log and no error.
//
// Errors: fault.Invalid for text that mount(8) would take as an option of its
// own; fault.Precondition when the kernel refuses the mount; the context's
// error at the deadline.
func (m *Mounter) Mount(ctx context.Context, source, target, fsType string, options, sensitiveOptions []string) error {
	if err := checkArguments(source, target, fsType); err != nil {
		return err
	}
	before, err := m.At(ctx, target)
	if err != nil {
		return err
	}
	args, _ := mountutils.MakeMountArgsSensitive(source, target, fsType, options, sensitiveOptions)
	if _, err := m.run.Run(ctx, run.Cmd{Tool: "mount", Args: args, Secrets: secretsOf(sensitiveOptions)}); err != nil {
		return mountFailed(err, source, target)
	}
	after, err := m.At(ctx, target)
	if err != nil {
		return err
	}
	if len(after) <= len(before) {
		return fault.New(fault.Unavailable, "mount of %s at %s returned success, but nothing is mounted there", source, target)
	}
	top := after[len(after)-1]
	if !sameType(top.FSType, fsType) {
		return fault.New(fault.Precondition, "%s shows a %s filesystem after %s was mounted there as %s", target, top.FSType, source, fsType)
	}
	if major, minor, ok := deviceNumber(source); ok && (top.Major != major || top.Minor != minor) {
		return fault.New(fault.Precondition, "%s shows device %d:%d after %s (%d:%d) was mounted there",
			target, top.Major, top.Minor, source, major, minor)
	}
	return nil
}

// sameType compares a type of the mount table with the one asked for: nfs
// becomes nfs4 with version 4.
func sameType(got, want string) bool {
	if want == "" || got == want {
		return true
	}
	return strings.TrimSuffix(got, "4") == "nfs" && strings.TrimSuffix(want, "4") == "nfs"
}

// checkArguments keeps what is not ours from becoming an option of mount(8),
// which takes options behind operands too.
func checkArguments(source, target, fsType string) error {
	switch {
	case source == "" || strings.HasPrefix(source, "-"):
		return fault.New(fault.Invalid, "%q is nothing to mount", source)
	case !filepath.IsAbs(target):
		return fault.New(fault.Invalid, "mount point %q is not an absolute path", target)
	case strings.HasPrefix(fsType, "-") || strings.ContainsAny(fsType, ", \t\n"):
		return fault.New(fault.Invalid, "%q is no filesystem type", fsType)
	}
	return nil
}

// mount(8) ends with these bits: 1 usage or permission, 2 system error, 4
// internal, 8 interrupted, 16 mtab, 32 failure. The texts of NFS tell a server
// that does not answer from one that refuses.
func mountFailed(err error, source, target string) error {
	if ctxErr := contextError(err); ctxErr {
		return err
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fault.New(fault.Unavailable, "mount %s: %w", source, err)
	}
	text := run.Stderr(err)
	for _, t := range []string{"Connection refused", "Connection timed out", "No route to host", "Network is unreachable",
		"Stale file handle", "Connection reset", "Name or service not known", "Failed to resolve", "Input/output error", "can't read superblock"} {
		if strings.Contains(text, t) {
			return fault.New(fault.Unavailable, "mount %s at %s: %w", source, target, err)
		}
	}
	return fault.New(fault.Precondition, "mount %s at %s: %w", source, target, err)
}

func contextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// secretsOf lists what to mask: each option whole, and its value alone, since
// tools complain about a value without its name.
func secretsOf(sensitive []string) []string {
	secrets := append([]string(nil), sensitive...)
	for _, o := range sensitive {
		if _, value, ok := strings.Cut(o, "="); ok {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// deviceNumber returns the number of a block device node. It asks only the
// node, never the disk behind it.
func deviceNumber(path string) (major, minor int, ok bool) {
	if !filepath.IsAbs(path) {
		return 0, 0, false
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, false
	}
	return int(unix.Major(st.Rdev)), int(unix.Minor(st.Rdev)), true
}
