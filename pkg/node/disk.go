package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// disk is every change that this package itself makes to the host's files.
type disk interface {
	// write replaces the file in one step and has it on the disk when it returns.
	write(name string, data []byte) error
	// erase removes what write wrote; nothing there is a success.
	erase(name string) error
	// mkdir makes a directory and its parents.
	mkdir(path string) error
	// mkfile makes an empty file and its parents; one that exists is an error.
	mkfile(path string) error
	// rmdir removes a directory only when it is empty and nothing is mounted
	// on it.
	rmdir(path string) error
	// rmfile removes a file only when nothing is mounted on it.
	rmfile(path string) error
}

type hostDisk struct{}

func (hostDisk) write(name string, data []byte) error {
	dir := filepath.Dir(name)
	if err := renameio.WriteFile(name, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return syncDir(dir)
}

func (hostDisk) erase(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes a rename or removal in dir survive a power loss.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (hostDisk) mkdir(path string) error { return os.MkdirAll(path, 0o750) }

func (hostDisk) mkfile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

func (hostDisk) rmdir(path string) error {
	if err := unix.Rmdir(path); err != nil {
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

func (hostDisk) rmfile(path string) error {
	if err := unix.Unlink(path); err != nil {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}
