// Package iscsi is the initiator's side of iSCSI volumes, over open-iscsi: it
// logs in to one target a volume, finds the disk of that session in sysfs, and
// takes all of it away again. It mounts and formats nothing, and it holds no
// state: what is attached is read from the kernel, never from a file.
package iscsi

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/run"
)

// The defaults of Config.
const (
	defaultReplacementTimeout = 120 * time.Second
	defaultLoginTimeout       = 10 * time.Second
)

// Config is what an operator can choose.
type Config struct {
	// ReplacementTimeout is how long I/O of a lost session is held before it
	// fails; zero means 120 s.
	ReplacementTimeout time.Duration
	// LoginTimeout bounds one login attempt at one portal; zero means 10 s.
	LoginTimeout time.Duration
}

// Attacher implements attach.Attacher. It is safe for concurrent use; calls
// for one volume are serialised by the caller.
type Attacher struct {
	run *run.Runner
	cfg Config
	// interfaces is held while the interface record, which all volumes share,
	// is made.
	interfaces chan struct{}
	// mounts reads this process's mount table.
	mounts func(context.Context) ([]mount.Info, error)
	// number returns the number of a block device node.
	number func(path string) (major, minor uint32, ok bool)
	// claimed reports whether the kernel or a process has a block device for
	// itself alone.
	claimed func(path string) bool
	// sys, dev, udev and proc are where the kernel and udev are seen.
	sys, dev, udev, proc string
	// databases are where open-iscsi keeps its records: /etc/iscsi, or
	// /var/lib/iscsi where it was built so.
	databases []string
	// deviceTimeout bounds the wait for the disk of a session, and for the
	// multipath map of a disk.
	deviceTimeout time.Duration
	// unlistedTimeout is how long multipathd may take to list a disk that udev
	// has handled, before it is held to be blacklisted.
	unlistedTimeout time.Duration
	// busyTimeout is how long a multipath map may be open for a passing look.
	busyTimeout time.Duration
}

var _ attach.Attacher = (*Attacher)(nil)

// New returns an Attacher that starts its tools with r.
func New(r *run.Runner, cfg Config) *Attacher {
	if cfg.ReplacementTimeout <= 0 {
		cfg.ReplacementTimeout = defaultReplacementTimeout
	}
	if cfg.LoginTimeout <= 0 {
		cfg.LoginTimeout = defaultLoginTimeout
	}
	return &Attacher{
		run: r, cfg: cfg,
		interfaces: make(chan struct{}, 1),
		mounts:     mount.New(r).Mounts,
		number:     deviceNumber,
		claimed:    deviceClaimed,
		sys:        "/sys", dev: "/dev", udev: "/run/udev", proc: "/proc",
		databases:       []string{"/etc/iscsi", "/var/lib/iscsi"},
		deviceTimeout:   30 * time.Second,
		unlistedTimeout: 3 * time.Second,
		busyTimeout:     20 * time.Second,
	}
}

// iscsidSocket is the abstract socket on which iscsid, or systemd for it,
// listens (open-iscsi, usr/mgmt_ipc.h).
const iscsidSocket = "@ISCSIADM_ABSTRACT_NAMESPACE"

// Ready reports why no volume can be attached now: iscsiadm is missing, iscsid
// does not listen, or the kernel has no iSCSI over TCP.
func (a *Attacher) Ready(ctx context.Context) error {
	if _, err := exec.LookPath("iscsiadm"); err != nil {
		return fault.New(fault.Unavailable, "iSCSI volumes cannot be attached: iscsiadm is missing, install open-iscsi: %w", err)
	}
	sockets, err := os.ReadFile(filepath.Join(a.proc, "net/unix"))
	if err != nil {
		return fault.New(fault.Unavailable, "iSCSI volumes cannot be attached: %w", err)
	}
	if !bytes.Contains(sockets, []byte(iscsidSocket)) {
		return fault.New(fault.Unavailable, "iSCSI volumes cannot be attached: iscsid does not listen, start the service iscsid")
	}
	if _, err := os.Stat(filepath.Join(a.sys, "class/iscsi_transport/tcp")); err == nil {
		return nil
	}
	// iscsiadm loads the module itself at the first login.
	if _, err := a.run.Run(ctx, run.Cmd{Tool: "modprobe", Args: []string{"--dry-run", "--quiet", "iscsi_tcp"}}); err != nil {
		return fault.New(fault.Unavailable, "iSCSI volumes cannot be attached: the kernel has no module iscsi_tcp: %w", err)
	}
	return nil
}
