package release

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Users names what has a block device of this host open for itself: targets,
// mappings, mounts. Empty when nobody has. It changes nothing.
func (r *Releaser) Users(device string) ([]string, error) {
	real, err := filepath.EvalSymlinks(device)
	if err != nil {
		return nil, err
	}
	targets, err := r.targets(real)
	if err != nil {
		return nil, err
	}
	mappings, err := filepath.Glob(filepath.Join(r.sys, "block", filepath.Base(real), "holders", "*"))
	if err != nil {
		return nil, err
	}
	users := targets
	for _, m := range mappings {
		users = append(users, "device "+filepath.Base(m))
	}
	mounts, err := r.mountsOf(real)
	if err != nil {
		return nil, err
	}
	users = append(users, mounts...)
	if len(users) > 0 {
		return users, nil
	}
	// What claims the device, or a partition of it, keeps others from doing so.
	fd, err := unix.Open(real, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return []string{"a program, or a partition of it (see `lsblk " + device + "`)"}, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: device, Err: err}
	}
	return nil, unix.Close(fd)
}

// targets are the backstores of the kernel's target that have the device.
func (r *Releaser) targets(real string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(r.sys, "kernel/config/target/core/*/*/udev_path"))
	if err != nil {
		return nil, err
	}
	var users []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		path, err := filepath.EvalSymlinks(strings.TrimSpace(string(raw)))
		if err == nil && path == real {
			users = append(users, "the iSCSI backstore "+filepath.Base(filepath.Dir(file)))
		}
	}
	return users, nil
}

// mountsOf are the directories where the device is mounted.
func (r *Releaser) mountsOf(real string) (users []string, err error) {
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: real, Err: err}
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	f, err := os.Open(filepath.Join(r.proc, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// ID, parent, major:minor, root, mount point (proc(5)).
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[2] == number {
			users = append(users, "a mount at "+fields[4])
		}
	}
	return users, lines.Err()
}
