// Package csi is what the two stand-ins have in common: they ask a driver over its
// socket, and say over HTTP whether all is well.
package csi

import (
	"context"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Driver is a driver at its socket, which may be made later.
type Driver struct{ identity csi.IdentityClient }

// Connect returns the driver at the path of a socket.
func Connect(socket string) (*Driver, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &Driver{csi.NewIdentityClient(conn)}, nil
}

// Name asks for the driver's name, and waits until it answers.
func (d *Driver) Name(ctx context.Context) (string, error) {
	info, err := d.identity.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	return info.GetName(), err
}

// Ready asks whether the driver is ready. A driver that does not say is.
func (d *Driver) Ready(ctx context.Context) (bool, error) {
	answer, err := d.identity.Probe(ctx, &csi.ProbeRequest{})
	return err == nil && (answer.GetReady() == nil || answer.GetReady().GetValue()), err
}

// Serve answers GET /healthz at an address: 200 when healthy returns no error in
// the given time, else 500. It returns when it cannot listen.
func Serve(address string, limit time.Duration, healthy func(context.Context) error) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		if err := healthy(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: limit}
	return server.ListenAndServe()
}
