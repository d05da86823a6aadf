package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/step"
)

// child is a Cmd that runs.
type child struct {
	Cmd
	cmd    *exec.Cmd
	stderr tail
	done   func(error)
	ended  func() // of its step
}

// start starts a child and lists it. The error is an *Error.
func (r *Runner) start(ctx context.Context, c Cmd, stdin io.Reader, stdout io.Writer) (*child, error) {
	k := &child{Cmd: c, cmd: exec.CommandContext(ctx, c.Tool, c.Args...), stderr: tail{limit: maxStderrBytes}}
	k.cmd.Env = environment()
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	k.cmd.Cancel = func() error { return killGroup(k.cmd.Process.Pid) }
	k.cmd.WaitDelay = pipeGrace
	k.cmd.ExtraFiles = c.ExtraFiles
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = stdin, stdout, &k.stderr
	ended, err := step.Begin(ctx, step.Child, c.Tool+" "+c.mask(verb(c.Args)))
	if err != nil {
		return nil, c.notStarted(err)
	}
	k.ended = ended
	k.done = r.Track(ctx, c.Tool, c.mask(verb(c.Args)), c.line())
	if err := k.cmd.Start(); err != nil {
		err = k.failed(ctx, err)
		k.done(err)
		k.ended()
		return nil, err
	}
	return k, nil
}

// wait returns when the child, and after the end of ctx its whole group, has
// ended. The error is an *Error.
func (k *child) wait(ctx context.Context) error {
	err := k.cmd.Wait()
	if ctx.Err() != nil {
		endGroup(k.cmd.Process.Pid)
	}
	if errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		err = nil // it ended well and left a daemon that holds its pipes
	}
	if err != nil {
		err = k.failed(ctx, err)
	}
	k.done(err)
	k.ended()
	return err
}

func (k *child) failed(ctx context.Context, err error) error {
	e := &Error{Line: k.line(), Code: -1, Stderr: k.complaint(&k.stderr), Err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e.Code = exit.ExitCode()
	}
	if ctx.Err() != nil {
		e.Code, e.Err = -1, ctx.Err()
	}
	return e
}

// line is the command line, with secrets masked.
func (c Cmd) line() string { return c.mask(c.Tool + " " + strings.Join(c.Args, " ")) }

// input is what the child reads; nil is the null device.
func (c Cmd) input() io.Reader {
	if c.Stdin == nil {
		return nil
	}
	return bytes.NewReader(c.Stdin)
}

// notStarted is the error of a child that its caller did not live to start.
func (c Cmd) notStarted(err error) error { return &Error{Line: c.line(), Code: -1, Err: err} }
