package iscsi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// unused fails with fault.Precondition when a disk of the sessions, or a
// device built on one, is mounted, bound, swapped to or held.
func (a *Attacher) unused(ctx context.Context, sessions []session) error {
	var names []string
	for _, s := range sessions {
		disks, err := s.disks()
		if err != nil {
			return err
		}
		for _, d := range disks {
			more, err := a.stack(d.name)
			if err != nil {
				return err
			}
			names = append(names, more...)
		}
	}
	if len(names) == 0 {
		return nil
	}
	mounts, err := a.mounts(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if user := a.user(name, mounts); user != "" {
			return fault.New(fault.Precondition, "disk %s is still in use (%s): unmount it first", name, user)
		}
	}
	return nil
}

// stack returns a disk with its partitions, its multipath map, and that map's
// partitions.
func (a *Attacher) stack(name string) ([]string, error) {
	list := []string{name}
	parts, err := filepath.Glob(filepath.Join(a.sys, "block", name, "*", "partition"))
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		list = append(list, filepath.Base(filepath.Dir(p)))
	}
	m, ok, err := a.multipathOf(name)
	if ok {
		list = append(list, m.dm)
	}
	return list, err
}

// user says who uses a block device, or "".
func (a *Attacher) user(name string, mounts []mount.Info) string {
	number, err := attribute(filepath.Join(a.sys, "class/block", name), "dev")
	if err != nil {
		return "" // gone meanwhile
	}
	major, minor, err := parseNumber(number)
	if err != nil {
		return "unknown device number " + number
	}
	for _, m := range mounts {
		if m.Major == int(major) && m.Minor == int(minor) {
			return "mounted at " + m.Target
		}
		// A raw block volume: the node of the device bound at a file.
		if m.FSType == "devtmpfs" && m.Root == "/"+name {
			return "bound at " + m.Target
		}
	}
	// A filesystem that lives in another mount namespace has its directory
	// here all the same: /sys/fs/ext4/sdX, /sys/fs/xfs/sdX.
	if alive, _ := filepath.Glob(filepath.Join(a.sys, "fs/*", name)); len(alive) > 0 {
		return "its filesystem is mounted in another mount namespace"
	}
	holders, err := a.holdersOf(name)
	if err != nil {
		return err.Error()
	}
	for _, h := range holders {
		uuid, _ := attribute(filepath.Join(a.sys, "block", h, "dm"), "uuid")
		if !strings.HasPrefix(uuid, "mpath-") {
			return "held by " + h
		}
	}
	if swap, err := a.swapsTo(name); err != nil {
		return err.Error()
	} else if swap {
		return "swap space"
	}
	return ""
}

// holdersOf is holders for a disk or a partition.
func (a *Attacher) holdersOf(name string) ([]string, error) {
	return a.names(filepath.Join(a.sys, "class/block", name, "holders"))
}

func (a *Attacher) swapsTo(name string) (bool, error) {
	content, err := os.ReadFile(filepath.Join(a.proc, "swaps"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // a kernel without swap
	}
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(content)) {
		path, _, _ := strings.Cut(line, " ")
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if path == filepath.Join(a.dev, name) {
			return true, nil
		}
	}
	return false, nil
}
