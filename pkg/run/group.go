package run

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// A killed group is looked at in intervals that grow, with a look at every
// process of the host from scanPause on.
const (
	scanPause     = 16 * time.Millisecond
	maxGroupPause = 128 * time.Millisecond
)

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// endGroup kills what is left of a group whose first process has ended, and
// returns when nothing of it lives: a helper that SIGKILL cannot end yet, such
// as mount.nfs below mount, still holds what it held.
func endGroup(pgid int) {
	for pause := time.Millisecond; killGroup(pgid) == nil; pause = min(2*pause, maxGroupPause) {
		time.Sleep(pause)
		// Where init reaps, the group is soon gone without a look at all processes.
		lives := pause < scanPause || groupLives(pgid)
		reap(pgid)
		if !lives {
			return
		}
	}
}

// reap collects dead members of a group that have become our children, as they
// do when we are the first process of a container. Elsewhere init does it.
func reap(pgid int) {
	for {
		pid, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) || err == nil && pid == 0 {
			return
		}
	}
}

// groupLives reports whether a group has a member that is no zombie. A zombie
// holds nothing, and its parent may never ask for it.
func groupLives(pgid int) bool {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		raw, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue // no process, or it ended meanwhile
		}
		// The name in parentheses may hold anything (proc_pid_stat(5)).
		var state string
		var ppid, group int
		_, err = fmt.Fscan(bytes.NewReader(raw[bytes.LastIndexByte(raw, ')')+1:]), &state, &ppid, &group)
		if err == nil && group == pgid && state != "Z" && state != "X" {
			return true
		}
	}
	return false
}
