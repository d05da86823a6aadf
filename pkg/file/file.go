// Package file keeps small files so that a crash or a loss of power leaves the
// old content or the new one, and a name that is removed stays removed.
package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/step"
)

// Unfinished is the name of what is to become path: hidden, beside it, and never
// in TMPDIR, where a crash would leave what nobody looks for. It is one name, so
// that a Replace that was cut off leaves nothing that the next one does not
// take.
func Unfinished(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

// Replace gives path a content and a mode, on the disk when it returns. There
// must not be two at once for one path; its folder exists.
func Replace(path string, content []byte, mode fs.FileMode) error {
	unfinished := Unfinished(path)
	err := do("write", path, func() error { return write(unfinished, content, mode) })
	if err == nil {
		err = do("rename", path, func() error { return os.Rename(unfinished, path) })
	}
	if err != nil {
		return errors.Join(err, removeName(unfinished))
	}
	return SyncDir(filepath.Dir(path))
}

func write(path string, content []byte, mode fs.FileMode) error {
	if err := removeName(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()) // whatever the umask is
}

// Remove removes path, and what a Replace that was cut off has left of it. None
// of them is a success.
func Remove(path string) error {
	err := do("remove", path, func() error { return errors.Join(removeName(Unfinished(path)), removeName(path)) })
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// RemoveUnfinished removes what each Replace that was cut off has left in dir, of
// files whose names begin with a prefix.
func RemoveUnfinished(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		ours, err := filepath.Match(Unfinished(prefix+"*"), e.Name())
		if err == nil && ours {
			err = removeName(filepath.Join(dir, e.Name()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func removeName(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir makes what was made, renamed or removed in a folder survive a loss of
// power. A folder that is not there has nothing to lose.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func do(what, path string, effect func() error) error {
	return step.Do(context.Background(), step.File, what+" "+filepath.Base(path), effect)
}
