// Package zfs reads and changes datasets, snapshots and their properties. It
// reports facts ("does not exist", "busy") and decides nothing; what counts as
// done is pkg/volume's business.
//
// go-zfs is used where it is one command with a deadline: destroying, setting
// one property, reading a dataset's numbers. Everything else runs on pkg/run,
// since go-zfs lists after every verb, knows no user properties with their
// source, and takes an existing dataset for a success.
package zfs

import (
	"context"
	"os"
	"time"

	gozfs "github.com/mistifyio/go-zfs/v4"

	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/step"
)

// killGrace is how long a go-zfs child may take to end after SIGTERM.
const killGrace = 5 * time.Second

// Runner starts children; *run.Runner is one.
type Runner interface {
	Run(ctx context.Context, c run.Cmd) ([]byte, error)
	Pipe(ctx context.Context, from, to run.Cmd) ([]byte, error)
	// Track lists a child that go-zfs starts.
	Track(ctx context.Context, tool, verb, line string) func(error)
}

// Client runs ZFS commands on this host.
type Client struct {
	run Runner
}

// New returns a client. timeout bounds the commands that go-zfs starts, which
// know no context; it is a setting of the whole process, as is the C locale
// that go-zfs' children inherit and by which their messages are understood.
func New(r Runner, timeout time.Duration) (*Client, error) {
	if err := os.Setenv("LC_ALL", "C"); err != nil {
		return nil, err
	}
	gozfs.SetRunner(&gozfs.Runner{Timeout: timeout, Grace: killGrace})
	return &Client{run: r}, nil
}

// zfs runs one command about name, which may give the dataset another name.
func (c *Client) zfs(ctx context.Context, args []string, name string, others ...string) (string, error) {
	out, err := c.run.Run(ctx, run.Cmd{Tool: "zfs", Args: args})
	return string(out), classify(err, name, others...)
}

// viaLibrary runs a go-zfs call as a listed child of pkg/run.
func (c *Client) viaLibrary(ctx context.Context, verb, name string, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ended, err := step.Begin(ctx, step.Child, "zfs "+verb)
	if err != nil {
		return err
	}
	defer ended()
	done := c.run.Track(ctx, "zfs", verb, "zfs "+verb+" "+name)
	err = call()
	done(err)
	return classify(err, name)
}
