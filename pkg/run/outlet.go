package run

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// outlet is a pipe into which a child writes. All that the child wrote is read
// from it, also where this process gets no processor for long: exec.Cmd, with a
// WaitDelay, would then close the pipe with the rest of the output in it, as it
// does where a daemon was left behind that holds the pipe.
type outlet struct {
	read *os.File
	to   io.Writer
	done chan error
}

// newOutlet begins to copy to the writer what is written into the file, which
// is closed by the caller once the child has it.
func newOutlet(to io.Writer) (*outlet, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	o := &outlet{read: read, to: to, done: make(chan error, 1)}
	go func() {
		_, err := io.Copy(o.to, o.read)
		o.done <- err
	}()
	return o, write, nil
}

// errGrace ends a grace that nothing else ends.
var errGrace = errors.New("the pipes are still open")

// close ends the copying. The child has ended; until grace ends, somebody else
// who holds the pipe is waited for. It is an error where that end is not errGrace.
func (o *outlet) close(grace context.Context) error {
	select {
	case err := <-o.done:
		return errors.Join(err, o.read.Close())
	case <-grace.Done():
	}
	if err := o.read.SetReadDeadline(time.Now()); err != nil {
		return errors.Join(err, o.read.Close())
	}
	err := <-o.done
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = o.rest()
		if !errors.Is(context.Cause(grace), errGrace) {
			err = errors.Join(err, grace.Err())
		}
	}
	return errors.Join(err, o.read.Close())
}

// rest copies what is in the pipe now, and with it the last that the child wrote.
func (o *outlet) rest() error {
	if err := o.read.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	conn, err := o.read.SyscallConn()
	if err != nil {
		return err
	}
	bytes, ioctlErr := 0, error(nil)
	if err := conn.Control(func(fd uintptr) { bytes, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		return err
	}
	if ioctlErr != nil {
		return ioctlErr
	}
	_, err = io.CopyN(o.to, o.read, int64(bytes))
	return err
}
