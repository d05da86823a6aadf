//go:build guest

package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func deviceNumber(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }

// stoppedTool waits for a replaced tool that has stopped itself, and returns its
// process: it wrote it to the file pid.
func stoppedTool(t *testing.T, dir string) (pid int) {
	t.Helper()
	file := filepath.Join(dir, "pid")
	eventually(t, "the tool stops", time.Minute, func() bool {
		b, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, after, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(after, "T")
	})
	return pid
}

// endTool ends a tool that has stopped itself, and its own children.
func endTool(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
}
