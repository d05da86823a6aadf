// Package nfs is the client's side of NFS exports. The kernel's client needs
// nothing before the mount, so attaching is making sure that server and share
// name one export and nothing else: they arrive as text and end as an argument
// of mount(8).
package nfs

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Attacher implements attach.Attacher.
type Attacher struct {
	run         *run.Runner
	filesystems string
}

var _ attach.Attacher = (*Attacher)(nil)

// New returns an Attacher that starts its tools with r.
func New(r *run.Runner) *Attacher { return &Attacher{run: r, filesystems: "/proc/filesystems"} }

// Attach returns the source to mount. It starts nothing and asks no server.
func (a *Attacher) Attach(_ context.Context, t attach.Target, _ *chap.Credentials) (attach.Device, error) {
	source, err := Source(t.Server, t.Share)
	return attach.Device{Path: source}, err
}

// Find returns the source to mount. There is no state below a mount that could
// be missing, so an export that is named is always found.
func (a *Attacher) Find(_ context.Context, t attach.Target) (attach.Device, bool, error) {
	source, err := Source(t.Server, t.Share)
	return attach.Device{Path: source}, err == nil, err
}

// Detach does nothing: the unmount was all.
func (a *Attacher) Detach(context.Context, attach.Target) error { return nil }

// Rescan does nothing: the server is asked for the size each time.
func (a *Attacher) Rescan(context.Context, attach.Target) error { return nil }

// Reachable knows nothing: an NFS client has no session that could be looked at.
func (a *Attacher) Reachable(context.Context, attach.Target) error { return nil }

// Ready reports whether this node can mount NFS: the helper of mount(8) is
// there, and the kernel has the filesystem or can load it.
func (a *Attacher) Ready(ctx context.Context) error {
	if _, err := exec.LookPath("mount.nfs"); err != nil {
		return fault.New(fault.Unavailable, "NFS volumes cannot be mounted: mount.nfs is missing, install nfs-common or nfs-utils: %w", err)
	}
	loaded, err := a.loaded()
	if err != nil || loaded {
		return err
	}
	// The alias that the kernel asks for when nfs4 is mounted, fs/filesystems.c.
	if _, err := a.run.Run(ctx, run.Cmd{Tool: "modprobe", Args: []string{"--dry-run", "--quiet", "fs-nfs4"}}); err != nil {
		return fault.New(fault.Unavailable, "NFS volumes cannot be mounted: the kernel has no nfs4 filesystem and no module for it: %w", err)
	}
	return nil
}

func (a *Attacher) loaded() (bool, error) {
	content, err := os.ReadFile(a.filesystems)
	if err != nil {
		return false, fault.New(fault.Unavailable, "%w", err)
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == "nfs4" {
			return true, nil
		}
	}
	return false, nil
}

// hostname is RFC 1123; a label never begins with a dash, so it is no option.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// Source joins server and share to what mount(8) takes, with brackets around
// an IPv6 address. Anything but a host name or a literal address and a clean
// absolute path is fault.Invalid.
func Source(server, share string) (string, error) {
	bare := server
	if inner, ok := strings.CutPrefix(server, "["); ok {
		if bare, ok = strings.CutSuffix(inner, "]"); !ok {
			bare = ""
		}
	}
	addr, err := netip.ParseAddr(bare)
	switch {
	case err == nil && addr.Zone() == "" && (bare == server || addr.Is6()):
		if addr.Is6() {
			bare = "[" + bare + "]"
		}
	case bare == server && len(server) <= 253 && hostname.MatchString(server):
	default:
		return "", fault.New(fault.Invalid, "NFS server %q is neither a host name nor an IP address", ident.Printable(server))
	}
	if !path.IsAbs(share) || path.Clean(share) != share || strings.ContainsFunc(share, unsafe) {
		return "", fault.New(fault.Invalid,
			"NFS share %q is not a clean absolute path (no '..', comma, blank, quote, backslash or control character)", ident.Printable(share))
	}
	return bare + ":" + share, nil
}

// unsafe are the characters that mount(8), mount.nfs(8) or a mount table could
// take for something else.
func unsafe(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`,"'\#:`, r)
}
