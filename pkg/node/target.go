package node

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// prepareTarget makes the target path ready to be bound on: an empty directory,
// or for a block volume an empty file. Nothing is mounted there, so looking at
// it cannot hang. What is there and is not empty is somebody's, and refused.
func (s *Service) prepareTarget(path string, block bool) (made bool, err error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = s.makeTarget(path, block)
		return err == nil, err
	case err != nil:
		return false, fault.New(fault.Precondition, "the target path cannot be used: %w", err)
	case st.IsDir():
		empty, err := isEmpty(path)
		switch {
		case err != nil:
			return false, fault.New(fault.Precondition, "the target path cannot be used: %w", err)
		case !empty:
			return false, fault.New(fault.Precondition, "target path %s is a directory with something in it: empty it first", path)
		case !block:
			return false, nil
		}
		if err := s.disk.rmdir(path); err != nil {
			return false, fault.New(fault.Precondition, "the target path cannot be used: %w", err)
		}
		err = s.makeTarget(path, block)
		return err == nil, err
	case block && st.Mode().IsRegular() && st.Size() == 0:
		return false, nil
	}
	return false, fault.New(fault.Precondition, "target path %s is %s: remove it first", path, kindOf(st))
}

func (s *Service) makeTarget(path string, block bool) error {
	mk := s.disk.mkdir
	if block {
		mk = s.disk.mkfile
	}
	if err := mk(path); err != nil {
		return fault.New(fault.Precondition, "the target path cannot be made: %w", err)
	}
	return nil
}

// removeTarget removes a target path where nothing is mounted any more: an
// empty directory or an empty file, never anything in them, and never the
// parent. Nothing there is a success.
func (s *Service) removeTarget(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return fault.New(fault.Unavailable, "the target path cannot be removed: %w", err)
	case st.IsDir():
		err = s.disk.rmdir(path)
	case st.Mode().IsRegular() && st.Size() == 0:
		err = s.disk.rmfile(path)
	default:
		return fault.New(fault.Precondition, "target path %s is %s, which no publish has made: remove it by hand", path, kindOf(st))
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTEMPTY):
		return fault.New(fault.Precondition, "target path %s is not mounted and has something in it that is on the node's own disk: move it away", path)
	}
	return fault.New(fault.Unavailable, "the target path cannot be removed: repeat the call: %w", err)
}

func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	names, err := f.Readdirnames(1)
	if len(names) > 0 {
		return false, nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err == nil, err
}

func kindOf(st fs.FileInfo) string {
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		return "a symbolic link"
	case st.IsDir():
		return "a directory"
	case st.Mode().IsRegular():
		return "a file"
	}
	return "a special file"
}
