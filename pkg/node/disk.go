package node

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/file"
	"github.com/tarn-csi/tarn/pkg/step"
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

func (hostDisk) write(name string, data []byte) error { return file.Replace(name, data, 0o600) }

func (hostDisk) erase(name string) error { return file.Remove(name) }

func (hostDisk) mkdir(path string) error {
	return do("mkdir", func() error { return os.MkdirAll(path, 0o750) })
}

func (d hostDisk) mkfile(path string) error {
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	return do("mkfile", func() error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o640)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

func (hostDisk) rmdir(path string) error {
	if err := do("rmdir", func() error { return unix.Rmdir(path) }); err != nil {
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

func (hostDisk) rmfile(path string) error {
	if err := do("unlink", func() error { return unix.Unlink(path) }); err != nil {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

func do(what string, effect func() error) error {
	return step.Do(context.Background(), step.File, what, effect)
}
