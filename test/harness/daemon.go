// Package harness runs the real daemon on a real pool, for tests and for the
// demonstration. It needs root, and a host with ZFS and the servers.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Address is where the daemon serves and from where its node comes.
const Address = "127.0.0.1"

// readyTimeout bounds the start of a daemon, also on an emulated processor.
const readyTimeout = 2 * time.Minute

// Daemon is a `tarn serve`. Dir holds its socket and state, and survives a
// restart.
type Daemon struct {
	// Dir is the daemon's folder.
	Dir string
	// Pool is what --pool gets: NAME=PARENT.
	Pool string
	// Args are further flags.
	Args []string
	// Binary is the program; "" is bin/tarn of the project.
	Binary string
	// Env are further variables of its environment.
	Env []string

	cmd  *exec.Cmd
	end  chan error
	log  syncBuffer
	conn *grpc.ClientConn
}

// Endpoint is the daemon's socket.
func (d *Daemon) Endpoint() string { return "unix://" + filepath.Join(d.Dir, "csi.sock") }

// Conn is the connection to it.
func (d *Daemon) Conn() *grpc.ClientConn { return d.conn }

// PID is the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Log is what it has logged since it was first started.
func (d *Daemon) Log() string { return d.log.String() }

// Start starts the daemon and waits until it is ready.
func (d *Daemon) Start(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	binary := d.Binary
	if binary == "" {
		binary = filepath.Join(root, "bin", "tarn")
	}
	d.cmd = exec.Command(binary, append([]string{"serve", "--log-level", "debug"}, d.flags()...)...)
	d.cmd.Env = append(os.Environ(), d.Env...)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon (build it with `make build`): %w", err)
	}
	d.end = make(chan error, 1)
	go func(c *exec.Cmd, end chan<- error) { end <- c.Wait() }(d.cmd, d.end)
	if d.conn, err = grpc.NewClient(d.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	return d.waitReady(ctx)
}

// flags are those that every command of the daemon's host needs.
func (d *Daemon) flags() []string {
	return append([]string{
		"--endpoint", d.Endpoint(), "--pool", d.Pool, "--address", Address, "--node-name", "node-1", "--node-address", Address,
		"--state-dir", filepath.Join(d.Dir, "state"), "--run-dir", filepath.Join(d.Dir, "run")}, d.Args...)
}

// Command runs another command of tarn with the daemon's configuration, and
// returns what it printed. The error has its complaint.
func (d *Daemon) Command(ctx context.Context, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "tarn"), append(args, d.flags()...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("tarn %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), err
}

// waitReady waits until the daemon says that it is ready, or ends.
func (d *Daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- waitReady(ctx, d.conn) }()
	select {
	case err := <-ready:
		return err
	case end := <-d.end:
		d.cmd = nil
		return fmt.Errorf("the daemon ended: %w", end)
	}
}

// WaitReady waits until a daemon is ready that something else started.
func WaitReady(ctx context.Context, endpoint string) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(waitReady(ctx, conn), conn.Close())
}

// waitReady probes until the answer is yes, the more rarely the longer it takes: an
// emulated processor has enough to do with a long start.
func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	for began := time.Now(); ; {
		_, err := csiv0.NewIdentityClient(conn).Probe(ctx, &csiv0.ProbeRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		timer := time.NewTimer(min(max(20*time.Millisecond, time.Since(began)/8), time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the daemon is not ready in time: %w", err)
		}
	}
}

// Stop asks the daemon to end and waits for it.
func (d *Daemon) Stop(ctx context.Context) error {
	err := d.conn.Close()
	if e := d.cmd.Process.Signal(syscall.SIGTERM); e != nil {
		return errors.Join(err, e)
	}
	select {
	case e := <-d.end:
		d.cmd = nil
		return errors.Join(err, e)
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Kill ends the daemon with SIGKILL, if it runs, and waits for it.
func (d *Daemon) Kill() {
	if d.cmd == nil || d.cmd.Process == nil {
		return
	}
	_ = d.conn.Close()
	_ = d.cmd.Process.Kill()
	<-d.end //nolint:errcheck // it was killed
	d.cmd = nil
}

// Root is the project's tree, seen from the working directory or from the
// program's own.
func Root() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, dir := range []string{wd, filepath.Dir(self)} {
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				return dir, nil
			}
			if dir == "/" {
				break
			}
		}
	}
	return "", errors.New("the project's tree is not above the working directory")
}

// syncBuffer is written by a child and read by the test.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
