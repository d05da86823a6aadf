package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// daemon is a child that runs until it is stopped.
type daemon struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

// daemon starts a program with its output in logs/NAME.log. The run fails when it
// ends before it is stopped.
func (c *cluster) daemon(name, program string, args ...string) error {
	log, err := os.Create(filepath.Join(c.logs(), name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	d := daemon{exec.Command(program, args...), make(chan struct{})}
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = c.environment(), log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is ours alone
	if err := d.cmd.Start(); err != nil {
		return err
	}
	c.daemons = append(c.daemons, d)
	go func() {
		err := d.cmd.Wait()
		if err == nil {
			err = errors.New("it ended by itself")
		}
		c.failed(fmt.Errorf("%s: %w", name, err))
		close(d.gone)
	}()
	return nil
}

// stop ends the daemons, the last one first. Whoever does not end in time goes with
// the process namespace.
func (c *cluster) stop() {
	for _, d := range slices.Backward(c.daemons) {
		if d.cmd.Process.Signal(syscall.SIGTERM) != nil {
			continue // it has ended
		}
		select {
		case <-d.gone:
		case <-time.After(10 * time.Second):
		}
	}
	c.daemons = nil
}

// environment is what children see: the caller's, without its cluster. A KUBECONFIG
// there would go before the flags of some of them.
func (c *cluster) environment() []string {
	without := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") })
	return append(without, "KUBECACHEDIR="+c.path("cache"))
}

// output runs a program to its end and returns what it printed.
func (c *cluster) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = c.environment()
	return printed(cmd)
}
