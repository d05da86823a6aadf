package iscsi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// device waits for the session's disk and returns what to use of it: the disk,
// or the multipath map above it. known is a session that was there before: it
// may not have scanned the LUN, and what the kernel remembers of the disk may
// be old.
func (a *Attacher) device(ctx context.Context, t attach.Target, s session, known bool) (attach.Device, error) {
	d, err := a.waitDisk(ctx, t, s, known)
	if err != nil {
		return attach.Device{}, err
	}
	if known {
		if err := a.rescan(ctx, d); err != nil {
			return attach.Device{}, err
		}
	}
	if serialOf(d) != t.Serial {
		// The page may be from before the target was made anew.
		if err := a.rescan(ctx, d); err != nil {
			return attach.Device{}, err
		}
		if err := checkSerial(d, t); err != nil {
			return attach.Device{}, err
		}
	}
	number, err := attribute(filepath.Join(a.sys, "block", d.name), "dev")
	if err != nil {
		return attach.Device{}, fault.New(fault.Unavailable, "the disk of %s vanished: %w", t.IQN, err)
	}
	name, err := a.waitClaim(ctx, t, d, number)
	if err != nil {
		return attach.Device{}, err
	}
	return a.waitNode(ctx, t, name)
}

// waitDisk polls until the session has a disk at the LUN.
func (a *Attacher) waitDisk(ctx context.Context, t attach.Target, s session, known bool) (disk, error) {
	var d disk
	scanned := !known
	err := poll(ctx, a.deviceTimeout, func() (bool, error) {
		found, ok, err := s.disk(t.LUN)
		if err != nil || ok {
			d = found
			return ok, err
		}
		if !scanned && !s.knows(t.LUN) {
			scanned = true
			return false, a.scan(ctx, s, t.LUN)
		}
		return false, nil
	})
	if errors.Is(err, errLate) {
		return disk{}, fault.New(fault.Unavailable, "no disk appeared for LUN %d of %s within %s: the target does not show it to this node",
			t.LUN, t.IQN, a.deviceTimeout)
	}
	return d, err
}

// scan makes the kernel look for one LUN of the session: CHANNEL TARGET LUN
// into the host's scan file. iSCSI sessions have one target on one channel.
func (a *Attacher) scan(ctx context.Context, s session, lun int) error {
	real, err := filepath.EvalSymlinks(filepath.Join(s.dir, "device"))
	if err != nil {
		return fault.New(fault.Unavailable, "session %d ended: %w", s.id, err)
	}
	host := filepath.Base(filepath.Dir(real)) // .../hostN/sessionN
	return a.write(ctx, filepath.Join(a.sys, "class/scsi_host", host, "scan"), "- - "+strconv.Itoa(lun))
}

// rescan makes the kernel ask the disk for its size and identity again. One
// disk costs half of what iscsiadm's rescan of the session does.
func (a *Attacher) rescan(ctx context.Context, d disk) error {
	return a.write(ctx, filepath.Join(d.scsi, "rescan"), "1")
}

// write puts text into a sysfs file that makes the kernel do I/O, in a child:
// when the target does not answer the write hangs, and no thread of ours may.
func (a *Attacher) write(ctx context.Context, path, text string) error {
	_, err := a.run.Run(ctx, run.Cmd{Tool: "tee", Args: []string{path}, Stdin: []byte(text)})
	if err != nil && !contextError(err) {
		return fault.New(fault.Unavailable, "%w", err)
	}
	return err
}

// serialOf returns the unit serial number that the kernel read when it last
// scanned the disk: VPD page 0x80 after its four bytes of header, SPC-4 7.8.
func serialOf(d disk) string {
	page, err := os.ReadFile(filepath.Join(d.scsi, "vpd_pg80"))
	if err != nil || len(page) < 4 {
		return ""
	}
	return strings.Trim(string(page[4:]), " \x00")
}

// checkSerial refuses a disk that is not the one that was published.
func checkSerial(d disk, t attach.Target) error {
	if got := serialOf(d); got != t.Serial {
		return fault.New(fault.Precondition,
			"disk %s at LUN %d of %s has serial %q, but the published volume has %q: it is another volume's and is not used",
			d.name, t.LUN, t.IQN, got, t.Serial)
	}
	return nil
}

// waitNode polls until /dev has the block device with the number that sysfs
// gives it.
func (a *Attacher) waitNode(ctx context.Context, t attach.Target, name string) (attach.Device, error) {
	dev := attach.Device{Path: filepath.Join(a.dev, name)}
	err := poll(ctx, a.deviceTimeout, func() (bool, error) {
		number, err := attribute(filepath.Join(a.sys, "block", name), "dev")
		if err != nil {
			return false, fault.New(fault.Unavailable, "the disk of %s vanished: %w", t.IQN, err)
		}
		major, minor, err := parseNumber(number)
		if err != nil {
			return false, err
		}
		var ok bool
		dev.Major, dev.Minor, ok = a.number(dev.Path)
		return ok && dev.Major == major && dev.Minor == minor, nil
	})
	if errors.Is(err, errLate) {
		return attach.Device{}, fault.New(fault.Unavailable, "%s did not become the block device of %s within %s", dev.Path, t.IQN, a.deviceTimeout)
	}
	return dev, err
}

// deviceNumber asks the node alone, never the disk behind it.
func deviceNumber(path string) (major, minor uint32, ok bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, false
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), true
}

// parseNumber reads MAJOR:MINOR.
func parseNumber(s string) (major, minor uint32, err error) {
	x, y, _ := strings.Cut(s, ":")
	ma, err1 := strconv.ParseUint(x, 10, 32)
	mi, err2 := strconv.ParseUint(y, 10, 32)
	return uint32(ma), uint32(mi), errors.Join(err1, err2)
}

// Find implements attach.Attacher. It asks the kernel only, never the disk.
func (a *Attacher) Find(ctx context.Context, t attach.Target) (attach.Device, bool, error) {
	if err := checkName("target", t.IQN); err != nil {
		return attach.Device{}, false, err
	}
	d, ok, err := a.attached(t)
	if err != nil || !ok {
		return attach.Device{}, false, err
	}
	if t.Serial != "" {
		if err := checkSerial(d, t); err != nil {
			return attach.Device{}, false, err
		}
	}
	name := d.name
	if m, ok, err := a.multipathOf(d.name); err != nil {
		return attach.Device{}, false, err
	} else if ok {
		name = m.dm
	}
	dev, err := a.waitNode(ctx, t, name)
	return dev, err == nil, err
}

// attached returns the disk of the target's LUN.
func (a *Attacher) attached(t attach.Target) (disk, bool, error) {
	sessions, err := a.sessions(t.IQN)
	if err != nil {
		return disk{}, false, err
	}
	for _, s := range sessions {
		d, ok, err := s.disk(t.LUN)
		if err != nil || ok {
			return d, ok, err
		}
	}
	return disk{}, false, nil
}

// Rescan implements attach.Attacher. Every path to the disk is asked, then the
// multipath map above them takes their size: multipathd refuses paths that
// differ.
func (a *Attacher) Rescan(ctx context.Context, t attach.Target) error {
	if err := checkName("target", t.IQN); err != nil {
		return err
	}
	sessions, err := a.sessions(t.IQN)
	if err != nil {
		return err
	}
	var paths []disk
	for _, s := range sessions {
		d, ok, err := s.disk(t.LUN)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if s.state != loggedIn {
			return fault.New(fault.Unavailable, "the session with %s is lost (%s), so the disk's size cannot be read", t.IQN, s.state)
		}
		paths = append(paths, d)
	}
	if len(paths) == 0 {
		return fault.New(fault.Precondition, "LUN %d of %s is not attached here", t.LUN, t.IQN)
	}
	for _, d := range paths {
		if err := a.rescan(ctx, d); err != nil {
			return err
		}
	}
	m, ok, err := a.multipathOf(paths[0].name)
	if err != nil || !ok {
		return err
	}
	return a.resizeMap(ctx, m)
}
