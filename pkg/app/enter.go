package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Enter makes the host's root this process's root, once: every tool and every
// path is the host's from here on. It refuses a process that is not in the
// host's namespaces too.
func Enter(root string) error {
	if root == "" || root == "/" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, "usr")); err != nil {
		return fmt.Errorf("--host-root %s is no root of a host: %w", root, err)
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("enter --host-root %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := ofHost("/proc", os.Getpid()); err != nil {
		return err
	}
	return os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

// ofHost refuses a process of other namespaces than the host's, whose /proc is
// given. Nothing would fail there at once: a portal of LIO would listen where no
// node is, and a child that has to be killed would be taken for dead.
func ofHost(proc string, pid int) error {
	// The link is resolved in the namespace for which this /proc was mounted (proc(5)).
	if self, err := os.Readlink(filepath.Join(proc, "self")); err != nil || self != strconv.Itoa(pid) {
		return fault.New(fault.Precondition, "this process has another id than the host's /proc tells (%q, not %d): give the pod hostPID: true", self, pid)
	}
	for _, n := range []struct{ name, setting string }{{"net", "hostNetwork"}, {"ipc", "hostIPC"}} {
		own, err := os.Readlink(filepath.Join(proc, "self/ns", n.name))
		hosts, err2 := os.Readlink(filepath.Join(proc, "1/ns", n.name))
		err = errors.Join(err, err2)
		if errors.Is(err, fs.ErrPermission) {
			return nil // a privileged pod may; who may not cannot tell
		}
		if err != nil {
			return fmt.Errorf("is this process in the host's namespaces? %w", err)
		}
		if own != hosts {
			return fault.New(fault.Precondition, "this process is not in the host's %s namespace: give the pod %s: true", n.name, n.setting)
		}
	}
	return nil
}
