package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// idle fails with fault.Precondition when anything at all may use a disk of the
// sessions. unused is enough for a caller who knows that the volume was
// unmounted; this is for one who knows nothing of it.
func (a *Attacher) idle(ctx context.Context, sessions []session) error {
	if err := a.unused(ctx, sessions); err != nil {
		return err
	}
	devices := map[string]string{} // names by number
	for _, s := range sessions {
		disks, err := s.disks()
		if err != nil {
			return err
		}
		for _, d := range disks {
			stack, err := a.stack(d.name)
			if err != nil {
				return err
			}
			for _, name := range stack {
				if number, err := attribute(filepath.Join(a.sys, "class/block", name), "dev"); err == nil {
					devices[number] = name
				}
			}
			if user, err := a.holder(s, d, stack); err != nil || user != "" {
				return inUse(d.name, user, err)
			}
		}
	}
	if len(devices) == 0 {
		return nil
	}
	name, user, err := a.opener(devices)
	if err != nil || user != "" {
		return inUse(name, user, err)
	}
	return nil
}

func inUse(name, user string, err error) error {
	if err != nil {
		return fault.New(fault.Unavailable, "who uses the disk cannot be told: %w", err)
	}
	return fault.New(fault.Precondition, "disk %s is still in use (%s)", name, user)
}

// holder says which part of the kernel holds a disk without being among its
// holders: a loop device, which does not claim it, or what has claimed it for
// itself, such as a target that exports it again.
func (a *Attacher) holder(s session, d disk, stack []string) (string, error) {
	loops, err := filepath.Glob(filepath.Join(a.sys, "block/loop*/loop/backing_file"))
	if err != nil {
		return "", err
	}
	for _, l := range loops {
		file, err := os.ReadFile(l)
		for _, name := range stack {
			if err == nil && strings.TrimSpace(string(file)) == filepath.Join(a.dev, name) {
				return "loop device " + filepath.Base(filepath.Dir(filepath.Dir(l))), nil
			}
		}
	}
	// Opening a disk waits while its host recovers from errors.
	if state, err := attribute(d.scsi, "state"); s.state != loggedIn || err != nil || state != running {
		return "", nil //nolint:nilerr // one without a state is going away
	}
	name := d.name
	if m, ok, err := a.multipathOf(d.name); err != nil {
		return "", err
	} else if ok {
		name = m.dm // which has claimed the disk
	}
	if a.claimed(filepath.Join(a.dev, name)) {
		return "claimed by the kernel or a program", nil
	}
	return "", nil
}

// deviceClaimed opens a block device as those do that want it alone, open(2).
func deviceClaimed(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd) // nothing was written
	}
	return errors.Is(err, unix.EBUSY)
}

// opener looks at every process for one that has one of the devices open, or
// sees it mounted or bound. devices are names by number.
func (a *Attacher) opener(devices map[string]string) (name, user string, err error) {
	processes, err := a.names(a.proc)
	if err != nil {
		return "", "", err
	}
	tables := map[string]map[int]mount.Info{} // by mount namespace
	for _, pid := range processes {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		dir := filepath.Join(a.proc, pid)
		namespace, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if ended(err) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		table, seen := tables[namespace]
		if !seen {
			list, err := mount.TableOf(dir)
			if ended(err) {
				continue
			}
			if err != nil {
				return "", "", err
			}
			if name, target := mountOf(list, devices); name != "" {
				return name, fmt.Sprintf("mounted or bound at %s for process %s", target, pid), nil
			}
			table = map[int]mount.Info{}
			for _, i := range list {
				table[i.ID] = i
			}
			tables[namespace] = table
		}
		if name, err := a.opens(dir, table, devices); err != nil {
			return "", "", err
		} else if name != "" {
			return name, "open in process " + pid, nil
		}
	}
	return "", "", nil
}

// ended reports that a process ended while it was looked at.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

func mountOf(table []mount.Info, devices map[string]string) (name, target string) {
	for _, i := range table {
		if name := devices[fmt.Sprintf("%d:%d", i.Major, i.Minor)]; name != "" {
			return name, i.Target
		}
		if i.FSType != "devtmpfs" {
			continue
		}
		for _, name := range devices {
			if i.Root == "/"+name {
				return name, i.Target
			}
		}
	}
	return "", ""
}

// localTypes are filesystems that may hold device nodes and answer from memory:
// a look at a file of any other may hang.
var localTypes = map[string]bool{
	"devtmpfs": true, "tmpfs": true, "ramfs": true, "rootfs": true, "overlay": true,
	"ext4": true, "ext3": true, "ext2": true, "xfs": true, "btrfs": true,
}

// opens returns which of the devices a process has open. multipathd has every
// path open, to see whether it works, and is none that counts.
func (a *Attacher) opens(process string, table map[int]mount.Info, devices map[string]string) (string, error) {
	if comm, _ := attribute(process, "comm"); comm == "multipathd" {
		return "", nil
	}
	files, err := os.ReadDir(filepath.Join(process, "fd"))
	if err != nil && !ended(err) {
		return "", err
	}
	for _, f := range files {
		path := filepath.Join(process, "fd", f.Name())
		link, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(link, "/") {
			continue // closed meanwhile, or a socket, a pipe
		}
		if on, ok := table[mountID(filepath.Join(process, "fdinfo", f.Name()))]; ok && localTypes[on.FSType] {
			if major, minor, ok := a.number(path); ok {
				if name := devices[fmt.Sprintf("%d:%d", major, minor)]; name != "" {
					return name, nil
				}
			}
			continue
		}
		for _, name := range devices {
			if link == filepath.Join(a.dev, name) {
				return name, nil
			}
		}
	}
	return "", nil
}

// mountID is the mount that an open file lies on, proc(5); -1 where it is not
// told.
func mountID(fdinfo string) int {
	content, err := os.ReadFile(fdinfo)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(content)) {
		if text, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			if id, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
				return id
			}
		}
	}
	return -1
}
