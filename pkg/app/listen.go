package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// dialTimeout bounds the question whether somebody listens already.
const dialTimeout = 2 * time.Second

// listen makes the socket, for root alone. A socket that nobody listens on is
// replaced; one that somebody does, and anything that is no socket, is refused.
func listen(endpoint string) (net.Listener, error) {
	path, err := config.SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{Control: rootOnly}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// rootOnly sets the mode of a socket that has no name yet: bind gives it to the
// file, which so has it from the first moment (unix_bind_bsd in net/unix/af_unix.c).
// A umask would be the whole process's, where other work makes files already.
func rootOnly(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); failed != nil {
		return failed
	}
	return err
}

func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fault.New(fault.Precondition, "%s exists and is no socket: give another --endpoint", path)
	}
	c, err := net.DialTimeout("unix", path, dialTimeout)
	if err == nil {
		_ = c.Close()
		return fault.New(fault.Precondition, "another process listens on %s: stop it, or give another --endpoint", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("is anybody listening on %s? %w", path, err)
	}
	return os.Remove(path)
}
