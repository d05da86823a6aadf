package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
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
	// outlets copy what it says.
	outlets []*outlet
	done    func(error)
	ended   func() // of its step
}

// start starts a child and lists it. The error is an *Error.
func (r *Runner) start(ctx context.Context, c Cmd, stdin io.Reader, stdout io.Writer) (*child, error) {
	k := &child{Cmd: c, cmd: exec.CommandContext(ctx, c.Tool, c.Args...), stderr: tail{limit: maxStderrBytes}}
	k.cmd.Env = environment()
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	k.cmd.Cancel = func() error { return killGroup(k.cmd.Process.Pid) }
	k.cmd.WaitDelay = pipeGrace
	k.cmd.ExtraFiles = c.ExtraFiles
	k.cmd.Stdin = stdin
	ended, err := step.Begin(ctx, step.Child, c.Tool+" "+c.mask(verb(c.Args)))
	if err != nil {
		return nil, c.notStarted(err)
	}
	k.ended = ended
	k.done = r.Track(ctx, c.Tool, c.mask(verb(c.Args)), c.line())
	if err := k.launch(ctx, stdout); err != nil {
		err = k.failed(ctx, err)
		k.done(err)
		k.ended()
		return nil, err
	}
	return k, nil
}

// launch starts the process, with outlets for what it says; a file is written
// by the child itself.
func (k *child) launch(ctx context.Context, stdout io.Writer) (err error) {
	var mine []*os.File
	defer func() {
		for _, f := range mine {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			err = errors.Join(err, k.closeOutlets(ctx))
		}
	}()
	for _, out := range []struct {
		to   io.Writer
		file *io.Writer
	}{{stdout, &k.cmd.Stdout}, {&k.stderr, &k.cmd.Stderr}} {
		if f, ok := out.to.(*os.File); ok {
			*out.file = f
			continue
		}
		o, f, err := newOutlet(out.to)
		if err != nil {
			return err
		}
		k.outlets, mine, *out.file = append(k.outlets, o), append(mine, f), f
	}
	return k.cmd.Start()
}

// closeOutlets returns when all is read that the child has said. A daemon that it
// left behind, and that holds its pipes, is waited for until the grace or ctx
// ends, which is then the error.
func (k *child) closeOutlets(ctx context.Context) (err error) {
	grace, cancel := context.WithTimeoutCause(ctx, pipeGrace, errGrace)
	defer cancel()
	for _, o := range k.outlets {
		err = errors.Join(err, o.close(grace))
	}
	return err
}

// wait returns when the child, and after the end of ctx its whole group, has
// ended. The error is an *Error.
func (k *child) wait(ctx context.Context) error {
	err := k.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		err = nil // it ended well and did not read all of its input
	}
	if outletErr := k.closeOutlets(ctx); err == nil {
		err = outletErr
	}
	if ctx.Err() != nil {
		endGroup(k.cmd.Process.Pid)
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
