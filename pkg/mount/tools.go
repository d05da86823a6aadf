package mount

import (
	"context"
	"errors"
	"io"
	"os/exec"

	utilexec "k8s.io/utils/exec"

	"github.com/tarn-csi/tarn/pkg/run"
)

// tools lets mount-utils start its children through pkg/run, under one
// context. It serves one call of one goroutine, and only CombinedOutput, which
// is all that ResizeFs uses.
type tools struct {
	ctx context.Context
	run *run.Runner
}

var _ utilexec.Interface = (*tools)(nil)

// Command implements utilexec.Interface.
func (t *tools) Command(tool string, args ...string) utilexec.Cmd {
	return &command{tools: t, cmd: run.Cmd{Tool: tool, Args: args}}
}

// CommandContext implements utilexec.Interface; the call's own context rules.
func (t *tools) CommandContext(_ context.Context, tool string, args ...string) utilexec.Cmd {
	return t.Command(tool, args...)
}

// LookPath implements utilexec.Interface.
func (t *tools) LookPath(file string) (string, error) { return exec.LookPath(file) }

type command struct {
	tools *tools
	cmd   run.Cmd
}

var errUnsupported = errors.New("only CombinedOutput is supported")

// CombinedOutput implements utilexec.Cmd. A child that failed is no ExitError:
// mount-utils would take blkid's status 2 for a blank device, and a device that
// is mounted is never blank.
func (c *command) CombinedOutput() ([]byte, error) {
	out, err := c.tools.run.Run(c.tools.ctx, c.cmd)
	return append(out, run.Stderr(err)...), err
}

func (c *command) Run() error                         { return errUnsupported }
func (c *command) Output() ([]byte, error)            { return nil, errUnsupported }
func (c *command) StdoutPipe() (io.ReadCloser, error) { return nil, errUnsupported }
func (c *command) StderrPipe() (io.ReadCloser, error) { return nil, errUnsupported }
func (c *command) Start() error                       { return errUnsupported }
func (c *command) Wait() error                        { return errUnsupported }
func (c *command) Stop()                              {}
func (c *command) SetDir(string)                      {}
func (c *command) SetStdin(io.Reader)                 {}
func (c *command) SetStdout(io.Writer)                {}
func (c *command) SetStderr(io.Writer)                {}
func (c *command) SetEnv([]string)                    {}
