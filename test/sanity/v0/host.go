package sanityv0

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/octal"
)

// Host is what the suite does and asks on the node's filesystem: the part of
// the orchestrator and of the workload. A function that is nil is that of the
// local machine; the two for data are only taken from it where Mounted is, too,
// since a plugin with fake mounts has no data: then they stay nil and the
// checks of data are skipped.
type Host struct {
	// MakeDir makes a directory where there is nothing, as the orchestrator does
	// before it names a path in a call. A file is left: it is the target path of a
	// block volume that was published there before.
	MakeDir func(path string) error
	// Remove removes a file or an empty directory; nothing there is no error.
	Remove func(path string) error
	// Mounted counts the lines of the mount table for that mount point.
	Mounted func(path string) (int, error)
	// Write writes data as a workload would that has the volume at path: to a
	// file of a mounted volume, or to the beginning of a block device, in which
	// case path must be one. The data is on the storage when it returns.
	Write func(path string, block bool, data []byte) error
	// Read reads the first size bytes of what Write wrote, or of a block device.
	Read func(path string, block bool, size int) ([]byte, error)
}

func (h Host) withDefaults() Host {
	local := LocalHost()
	if h.MakeDir == nil {
		h.MakeDir = local.MakeDir
	}
	if h.Remove == nil {
		h.Remove = local.Remove
	}
	if h.Mounted == nil {
		h.Mounted = local.Mounted
		if h.Write == nil && h.Read == nil {
			h.Write, h.Read = local.Write, local.Read
		}
	}
	return h
}

// hasData reports whether data can be written and read.
func (h Host) hasData() bool { return h.Write != nil && h.Read != nil }

// LocalHost is the machine on which the suite runs, in its own mount namespace.
func LocalHost() Host {
	return Host{
		MakeDir: func(path string) error {
			if _, err := os.Lstat(path); err == nil {
				return nil
			}
			return os.MkdirAll(path, 0o750)
		},
		Remove: func(path string) error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		},
		Mounted: func(path string) (int, error) {
			table, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				return 0, err
			}
			return countMounts(bytes.NewReader(table), resolved(path))
		},
		Write: localWrite,
		Read:  localRead,
	}
}

// resolved follows the links in the directory of path, but never touches path
// itself: a mount there may hang.
func resolved(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return filepath.Clean(path)
}

// countMounts counts the lines of a mountinfo table, proc_pid_mountinfo(5),
// whose mount point is path.
func countMounts(table io.Reader, path string) (int, error) {
	n := 0
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && octal.Unescape(fields[4]) == path {
			n++
		}
	}
	return n, lines.Err()
}

// dataFile is the file that Write makes in a mounted volume.
const dataFile = "sanity-data"

func localWrite(path string, block bool, data []byte) error {
	flags := os.O_WRONLY
	if block {
		if err := mustBeBlockDevice(path); err != nil {
			return err
		}
	} else {
		path, flags = filepath.Join(path, dataFile), flags|os.O_CREATE|os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func localRead(path string, block bool, size int) ([]byte, error) {
	if block {
		if err := mustBeBlockDevice(path); err != nil {
			return nil, err
		}
	} else {
		path = filepath.Join(path, dataFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err = io.ReadFull(f, data); err != nil {
		err = fmt.Errorf("read %d bytes of %s: %w", size, path, err)
	}
	return data, errors.Join(err, f.Close())
}

func mustBeBlockDevice(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return fmt.Errorf("%s is no block device but %s", path, info.Mode())
	}
	return nil
}
