package run

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestGroupLives(t *testing.T) {
	if !groupLives(syscall.Getpgrp()) {
		t.Error("the group of this process is dead")
	}
	if groupLives(1 << 30) {
		t.Error("a group that cannot exist lives")
	}
	endGroup(1 << 30) // returns, and kills nobody
}

// As the first process of a container we inherit the orphans of those we kill.
func TestEndGroupReapsMembersThatAreOurs(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endGroup(cmd.Process.Pid)
	if err := syscall.Kill(cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the member is still there: %v", err)
		_ = cmd.Wait()
	}
	_ = cmd.Process.Release()
}

// The first process of a container may be one that never reaps.
func TestEndGroupDoesNotWaitForAZombie(t *testing.T) {
	parent := exec.Command("sh", "-c", `setsid sh -c 'echo $$; exec sleep 600 >&-' & exec sleep 600 >&-`)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	defer parent.Process.Kill()
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	endGroup(group)
	if groupLives(group) {
		t.Error("the group lives")
	}
}
