package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/web"
)

// httpDrain is how long pages may take to be written after a request to end.
const httpDrain = 2 * time.Second

// listenHTTP opens the address of the configuration; nil where there is none.
func listenHTTP(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fault.New(fault.Precondition, "another process listens on %s: stop it, or give another --http-address", address)
	}
	if err != nil {
		return nil, fmt.Errorf("--http-address: %w", err)
	}
	return netutil.LimitListener(l, web.MaxConnections), nil
}

// serveHTTP serves until ctx ends, and lets pages that are being written be
// finished.
func serveHTTP(ctx context.Context, l net.Listener, server *http.Server) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// ctx has ended, and must not end the drain.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpDrain)
	defer cancel()
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
