package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

const (
	poolName = "tarndemo"
	parent   = poolName + "/csi"
	address  = "127.0.0.1"
	nodeName = "demo"
)

// daemon is a running `tarn serve`.
type daemon struct {
	dir string
	cmd *exec.Cmd
	// ended has the daemon's end.
	ended chan error
	log   bytes.Buffer
	conn  *grpc.ClientConn
}

func (d *daemon) endpoint() string { return "unix://" + filepath.Join(d.dir, "csi.sock") }

// start starts the daemon and waits until it is ready.
func (d *daemon) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.cmd = exec.Command(filepath.Join(filepath.Dir(self), "tarn"), "serve",
		"--endpoint", d.endpoint(), "--pool", "demo="+parent, "--address", address,
		"--node-name", nodeName, "--node-address", address,
		"--state-dir", filepath.Join(d.dir, "state"), "--run-dir", filepath.Join(d.dir, "run"))
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ended = make(chan error, 1)
	go func(c *exec.Cmd, ended chan<- error) { ended <- c.Wait() }(d.cmd, d.ended)
	if d.conn, err = grpc.NewClient(d.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	return d.waitReady(ctx)
}

// waitReady probes until the daemon says that it is ready.
func (d *daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := csiv0.NewIdentityClient(d.conn).Probe(ctx, &csiv0.ProbeRequest{})
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case end := <-d.ended:
			timer.Stop()
			d.cmd = nil
			return fmt.Errorf("the daemon ended: %w", end)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the daemon is not ready in time: %w", err)
		}
	}
}

// stop asks the daemon to end and waits for it.
func (d *daemon) stop(ctx context.Context) error {
	err := d.conn.Close()
	if e := d.cmd.Process.Signal(syscall.SIGTERM); e != nil {
		return errors.Join(err, e)
	}
	select {
	case e := <-d.ended:
		d.cmd = nil
		return errors.Join(err, e)
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// kill ends a daemon that a failed step left running.
func (d *daemon) kill() {
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

func (d *daemon) printLog() {
	fmt.Fprintf(os.Stderr, "--- the daemon's log\n%s---\n", d.log.String())
}
