package configfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/step"
)

// Host is the configfs of this machine.
type Host struct {
	root string
}

// NewHost returns the configfs that is mounted at root. It does not look
// whether it is.
func NewHost(root string) *Host { return &Host{root: filepath.Clean(root)} }

var _ FS = (*Host)(nil)

// Mkdir implements FS.
func (h *Host) Mkdir(p string) error {
	return h.change("mkdir", p, func(full string) error { return unix.Mkdir(full, 0o755) })
}

// Rmdir implements FS.
func (h *Host) Rmdir(p string) error { return h.change("rmdir", p, unix.Rmdir) }

// Unlink implements FS.
func (h *Host) Unlink(p string) error { return h.change("unlink", p, unix.Unlink) }

// Symlink implements FS.
func (h *Host) Symlink(target, p string) error {
	if !fs.ValidPath(target) {
		return &fs.PathError{Op: "symlink", Path: target, Err: unix.EINVAL}
	}
	return h.change("symlink", p, func(full string) error {
		return unix.Symlink(filepath.Join(h.root, target), full)
	})
}

// Write implements FS. The open has no O_CREAT, so a name that the kernel does
// not have is an error and never a file, and no O_TRUNC.
func (h *Host) Write(p, value string) error {
	if err := CheckValue(value); err != nil {
		return &fs.PathError{Op: "write", Path: filepath.Join(h.root, p), Err: err}
	}
	return h.change("write", p, func(full string) error {
		fd, err := unix.Open(full, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		n, err := unix.Write(fd, []byte(value))
		if err == nil && n != len(value) {
			err = io.ErrShortWrite
		}
		if closeErr := unix.Close(fd); err == nil {
			err = closeErr
		}
		return err
	})
}

// CheckValue reports EINVAL for a value that the kernel would not take as it
// is: an empty one, one that is cut off, and one with a newline, which becomes
// part of a CHAP password.
func CheckValue(value string) error {
	if value == "" || len(value) > MaxValueBytes || strings.ContainsAny(value, "\n\x00") {
		return unix.EINVAL
	}
	return nil
}

// Read implements FS.
func (h *Host) Read(p string) (string, error) {
	var value string
	err := h.do("read", p, func(full string) error {
		b, err := readAttribute(full)
		value = strings.TrimSuffix(string(b), "\n")
		return err
	})
	return value, err
}

// readAttribute takes an attribute with the fewest system calls: a round reads
// tens of thousands. The kernel shows a page at most, and all of it to the first
// read that has room (configfs_read_iter in fs/configfs/file.c).
func readAttribute(full string) ([]byte, error) {
	fd, err := unix.Open(full, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, MaxValueBytes+1)
	n, err := unix.Read(fd, buf)
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// List implements FS. A link that goes away meanwhile is left out.
func (h *Host) List(p string) ([]Entry, error) {
	var list []Entry
	err := h.do("list", p, func(full string) error {
		entries, err := os.ReadDir(full)
		if err != nil {
			return err
		}
		list = make([]Entry, 0, len(entries))
		for _, d := range entries {
			e := Entry{Name: d.Name(), Kind: Attribute}
			switch {
			case d.IsDir():
				e.Kind = Directory
			case d.Type()&fs.ModeSymlink != 0:
				e.Kind = Link
				target, err := os.Readlink(filepath.Join(full, e.Name))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					return err
				}
				e.Target = h.resolve(p, target)
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}

// resolve turns the text of a link in dir into a path of this FS. configfs
// answers readlink with a relative path whatever was given to symlink.
func (h *Host) resolve(dir, target string) string {
	if rest, ok := strings.CutPrefix(target, h.root+"/"); ok {
		return path.Clean(rest)
	}
	return path.Join(dir, target)
}

// change is do for what changes something.
func (h *Host) change(op, p string, call func(full string) error) error {
	return h.do(op, p, func(full string) error {
		return step.Do(context.Background(), step.Configfs, op+" "+path.Base(p), func() error { return call(full) })
	})
}

// do runs one system call on the full path, again when a signal cut it off,
// and gives its error the shape that FS promises.
func (h *Host) do(op, p string, call func(full string) error) error {
	if !fs.ValidPath(p) {
		return &fs.PathError{Op: op, Path: p, Err: unix.EINVAL}
	}
	full := filepath.Join(h.root, p)
	err := call(full)
	for errors.Is(err, unix.EINTR) {
		err = call(full)
	}
	if err == nil {
		return nil
	}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &fs.PathError{Op: op, Path: full, Err: err}
}
