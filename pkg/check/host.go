package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// host reads files of the host below root, which is "/" but in tests. Nothing
// here waits for a disk or a peer: it is /proc, /sys and /etc.
type host struct{ root string }

func (h host) path(name string) string { return filepath.Join(h.root, name) }

// read returns a file without the blanks at its ends.
func (h host) read(name string) (string, error) {
	b, err := os.ReadFile(h.path(name))
	return strings.TrimSpace(string(b)), err
}

func (h host) exists(name string) bool {
	_, err := os.Lstat(h.path(name))
	return err == nil
}

// glob returns what matches, seen from the root.
func (h host) glob(pattern string) []string {
	list, err := filepath.Glob(h.path(pattern))
	if err != nil {
		return nil // the pattern is none
	}
	for i, p := range list {
		list[i] = strings.TrimPrefix(strings.TrimPrefix(p, filepath.Clean(h.root)), "/")
	}
	return list
}

// process is a process or a thread of the kernel.
type process struct {
	pid int
	// start is in seconds since the boot.
	start float64
}

// ticksPerSecond is the unit of proc(5) on every Linux that Go runs on (USER_HZ).
const ticksPerSecond = 100

// processes returns those of the given names that live, the oldest first.
func (h host) processes(names ...string) []process {
	var list []process
	for _, path := range h.glob("proc/[0-9]*/stat") {
		stat, err := h.read(path)
		if err != nil {
			continue // it has ended
		}
		for _, name := range names {
			_, rest, found := strings.Cut(stat, " ("+name+") ")
			fields := strings.Fields(rest)
			// State is the third field of proc_pid_stat(5), starttime the 22nd; Z has ended.
			if !found || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
				continue
			}
			pid, errPID := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			ticks, errStart := strconv.ParseFloat(fields[19], 64)
			if errPID == nil && errStart == nil {
				list = append(list, process{pid: pid, start: ticks / ticksPerSecond})
			}
		}
	}
	slices.SortFunc(list, func(a, b process) int { return int(a.start*ticksPerSecond) - int(b.start*ticksPerSecond) })
	return list
}

// mounts is the mount table of this process.
func (h host) mounts() ([]*mountinfo.Info, error) {
	f, err := os.Open(h.path("proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return mountinfo.GetMountsFromReader(f, nil)
}

// listens reports whether a unix socket whose name holds the text is listed by
// the kernel.
func (h host) listens(name string) bool {
	sockets, err := h.read("proc/net/unix")
	return err == nil && strings.Contains(sockets, name)
}
