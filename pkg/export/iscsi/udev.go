package iscsi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// udevQueue is there while udev has something to do, by which `udevadm settle`
// goes too (udev_queue_get_queue_is_empty in systemd's libudev).
const udevQueue = "/run/udev/queue"

func hostUdevIdle() bool {
	_, err := os.Lstat(udevQueue)
	return err != nil
}

// AnnounceZvols has udev look again at every zvol to which it made no link.
//
// For the link's name zvol_id opens the device, which the kernel refuses while
// other zfs commands hold the lock on all pools' names for a second, see
// restartSys. udev then goes on without a link, for good: nothing else happens to
// the device.
func AnnounceZvols() error { return announceZvols("/") }

func announceZvols(root string) error {
	uevents, err := filepath.Glob(filepath.Join(root, "sys/block/zd*/uevent"))
	var errs []error
	for _, uevent := range uevents {
		dev, err := os.ReadFile(filepath.Join(filepath.Dir(uevent), "dev"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		known, err := os.ReadFile(filepath.Join(root, "run/udev/data/b"+strings.TrimSpace(string(dev))))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		if bytes.HasPrefix(known, []byte("S:zvol/")) || bytes.Contains(known, []byte("\nS:zvol/")) {
			continue
		}
		if err := announce(uevent); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, err)...)
}

// announce has the kernel tell of a device once more.
func announce(uevent string) error {
	f, err := os.OpenFile(uevent, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("change")
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("announce a zvol to udev: %w", err)
	}
	return nil
}
