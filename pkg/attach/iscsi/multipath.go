package iscsi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// multipath is a device-mapper map that multipathd built over a disk.
type multipath struct {
	dm   string // dm-N
	name string // as multipath tools call it
}

// multipathOf returns the multipath map above a disk. It is known by the
// prefix of its uuid (multipath-tools, libmultipath/devmapper.h).
func (a *Attacher) multipathOf(diskName string) (multipath, bool, error) {
	holders, err := a.holders(diskName)
	if err != nil {
		return multipath{}, false, err
	}
	for _, h := range holders {
		dir := filepath.Join(a.sys, "block", h, "dm")
		if uuid, err := attribute(dir, "uuid"); err == nil && strings.HasPrefix(uuid, "mpath-") {
			name, err := attribute(dir, "name")
			return multipath{dm: h, name: name}, err == nil && name != "", nil
		}
	}
	return multipath{}, false, nil
}

// holders are the block devices built on a block device.
func (a *Attacher) holders(name string) ([]string, error) {
	return a.names(filepath.Join(a.sys, "block", name, "holders"))
}

// names lists a directory of sysfs; one that is gone is empty.
func (a *Attacher) names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Unavailable, "%w", err)
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list, nil
}

// waitClaim returns the device to use: the multipath map when multipathd takes
// the disk, the disk when it does not.
//
// udev's record is not the last word: for a disk that is new to multipath its
// first event says that it is no path, and multipathd builds a map all the same
// (multipath-tools 0.9.4 with find_multipaths no). So multipathd is asked.
func (a *Attacher) waitClaim(ctx context.Context, t attach.Target, d disk, number string) (string, error) {
	var m multipath
	var unlisted time.Time
	claimed := false
	err := poll(ctx, a.deviceTimeout, func() (bool, error) {
		found, ok, err := a.multipathOf(d.name)
		if err != nil || ok {
			m = found
			return ok, err
		}
		handled, byMultipath := a.udevSays(number)
		claimed = byMultipath
		if !handled || claimed {
			return false, nil
		}
		if !a.multipathRuns() {
			return true, nil
		}
		known, mapped := a.multipathdSays(ctx, d.name)
		switch {
		case mapped:
			claimed = true
			return false, nil
		case known:
			return true, nil
		case unlisted.IsZero():
			unlisted = time.Now()
		}
		return time.Since(unlisted) > a.unlistedTimeout, nil
	})
	switch {
	case errors.Is(err, errLate) && claimed:
		return "", fault.New(fault.Unavailable, "multipathd claimed disk %s of %s but made no map of it within %s: see multipathd's log",
			d.name, t.IQN, a.deviceTimeout)
	case errors.Is(err, errLate), err == nil && m.dm == "":
		// udev that does not come round is no reason to refuse the disk: what
		// claims it later finds it in use.
		return d.name, nil
	case err != nil:
		return "", err
	}
	return m.dm, a.checkMap(m, t)
}

// udevSays reads udev's record of a block device: whether its events have been
// handled, and whether multipath's rules have claimed it, or may yet (2).
func (a *Attacher) udevSays(number string) (handled, byMultipath bool) {
	if _, err := os.Stat(filepath.Join(a.udev, "control")); err != nil {
		return true, false // no udev runs
	}
	record, err := os.ReadFile(filepath.Join(a.udev, "data", "b"+number))
	if err != nil {
		return false, false
	}
	lines := strings.Split(string(record), "\n")
	return true, slices.Contains(lines, "E:DM_MULTIPATH_DEVICE_PATH=1") || slices.Contains(lines, "E:DM_MULTIPATH_DEVICE_PATH=2")
}

// multipathRuns reports whether multipathd listens: on an abstract socket, and
// since multipath-tools 0.10 on one in /run.
func (a *Attacher) multipathRuns() bool {
	sockets, err := os.ReadFile(filepath.Join(a.proc, "net/unix"))
	return err == nil && strings.Contains(string(sockets), "/multipathd")
}

// multipathdSays asks multipathd for a disk: whether it has looked at it, and
// whether it has put it into a map. A disk that is blacklisted is never listed.
func (a *Attacher) multipathdSays(ctx context.Context, diskName string) (known, mapped bool) {
	out, err := a.run.Run(ctx, run.Cmd{Tool: "multipathd", Args: []string{"show", "paths", "raw", "format", "%d %m"}})
	if err != nil {
		return false, false
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == diskName {
			return true, fields[1] != "[orphan]"
		}
	}
	return false, false
}

// checkMap refuses a map that joins another volume's disk: multipath groups by
// an id that holds only the first 25 digits of the serial.
func (a *Attacher) checkMap(m multipath, t attach.Target) error {
	slaves, err := a.names(filepath.Join(a.sys, "block", m.dm, "slaves"))
	if err != nil {
		return err
	}
	for _, name := range slaves {
		d := disk{name: name, scsi: filepath.Join(a.sys, "block", name, "device")}
		if got := serialOf(d); got != t.Serial {
			return fault.New(fault.Precondition, "multipath map %s joins disk %s with serial %q to the volume with serial %q and is not used",
				m.name, name, got, t.Serial)
		}
	}
	return nil
}

// flushMap flushes a map and removes it. multipath(8) refuses one that is open;
// udev opens it for a moment now and then.
func (a *Attacher) flushMap(ctx context.Context, m multipath) error {
	var last error
	err := poll(ctx, a.busyTimeout, func() (bool, error) {
		_, last = a.run.Run(ctx, run.Cmd{Tool: "multipath", Args: []string{"-f", m.name}})
		// "map in use" is its own look beforehand, the other the kernel's answer.
		text := run.Stderr(last)
		return !strings.Contains(text, "in use") && !strings.Contains(text, "resource busy"), nil
	})
	switch {
	case contextError(err):
		return err
	case contextError(last), last == nil:
		return last
	case errors.Is(err, errLate):
		return fault.New(fault.Precondition, "multipath map %s is still in use: %w", m.name, last)
	}
	return fault.New(fault.Unavailable, "multipath map %s cannot be removed: %w", m.name, last)
}

// resizeMap gives a map the size of its disks.
func (a *Attacher) resizeMap(ctx context.Context, m multipath) error {
	out, err := a.run.Run(ctx, run.Cmd{Tool: "multipathd", Args: []string{"resize", "map", m.name}})
	if contextError(err) {
		return err
	}
	// multipathd answers "ok" or "fail", and older ones exit 0 with either.
	if answer := strings.TrimSpace(string(out)); err != nil || strings.Contains(answer, "fail") {
		return fault.New(fault.Unavailable, "multipath map %s cannot be resized: %s: %w", m.name, answer, err)
	}
	return nil
}
