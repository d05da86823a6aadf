// Package app makes objects out of a configuration, serves them on the socket,
// and ends in order. It decides nothing that a volume would notice.
package app

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Version is the driver's version, set when it is built.
var Version = "dev"

// drain is how long running calls may take after a request to end.
const drain = 30 * time.Second

// NewLog returns a logger as the configuration wants it.
func NewLog(c config.Config, to io.Writer) (*logrus.Logger, error) {
	level, err := logrus.ParseLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(to)
	log.SetLevel(level)
	if c.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	}
	return log, nil
}

// Run serves until ctx ends and then finishes what runs.
func Run(ctx context.Context, c config.Config, log *logrus.Logger) error {
	keys, err := readKeys(c)
	if err != nil {
		return err
	}
	inside := openCluster(c, log)
	if err := Enter(c.HostRoot); err != nil {
		return err
	}
	if err := keys.complete(c); err != nil {
		return err
	}
	// An address that cannot be had is told before anything is begun.
	pages, err := listenHTTP(c.HTTPAddress)
	if err != nil {
		return err
	}
	outside := newOutside(c, log)
	tracer, err := newTracer(ctx, c, log)
	if err != nil {
		return err
	}
	defer closeTracer(tracer, log) // after everything that makes spans
	runner := run.New(log, outside.metrics.Child, tracer.Child)
	outside.pages.Children = runner.Live
	identity := &csi.Identity{Name: c.DriverName, Version: Version, Controller: c.Mode != config.Node, Topology: len(c.Topology) > 0, Ready: func() error { return nil }}
	var controller *csi.Controller
	var node *csi.Node

	// Background work ends after the last call, not before it.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var work errgroup.Group

	var volumes *volume.Service
	if c.Mode != config.Node {
		volumes, err = newVolumes(c, keys.master, runner, log, false)
		if err != nil {
			return err
		}
		defer volumes.Close() //nolint:errcheck // the process ends
		controller = &csi.Controller{Volumes: volumes}
		identity.Ready = volumes.Ready
		outside.storage(volumes)
		work.Go(func() error { volumes.Run(background); return nil })
		if inside != nil {
			work.Go(func() error { inside.tell(background, c, volumes.Last); return nil })
		}
		defer finish(log, volumes.Drain)
	}
	if c.Mode != config.Controller {
		n, err := newNode(c, keys, runner, log)
		if err != nil {
			return err
		}
		pods, end, err := newEphemeral(c, n, volumes, log)
		if err != nil {
			return err
		}
		defer end() //nolint:errcheck // the process ends
		node = &csi.Node{Node: n, Ephemeral: pods, MaxVolumes: c.MaxVolumesPerNode, Topology: c.Topology}
		health := newHealth(n.Ready)
		outside.node(n, health)
		work.Go(func() error { health.run(background); return nil })
		work.Go(func() error { n.Run(background); return nil })
		identity.Ready = both(identity.Ready, health.last)
	}

	listener, err := listen(c.Endpoint)
	if err != nil {
		return err
	}
	if pages != nil {
		http := outside.server(identity.Ready)
		work.Go(func() error {
			err := serveHTTP(background, pages, http)
			if err != nil {
				log.WithError(err).Error("the status page ended; volumes are served on")
			}
			return err
		})
		log.WithField("address", pages.Addr().String()).Info("metrics, health and status page")
	}
	server := grpc.NewServer(tracer.Server(), grpc.ChainUnaryInterceptor(outside.metrics.Unary, tracer.Unary, csi.Interceptor(log, c.OperationTimeout)))
	csi.Register(server, identity, controller, node)
	log.WithFields(logrus.Fields{"endpoint": c.Endpoint, "mode": c.Mode, "driver": c.DriverName, "version": Version}).Info("serving")

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("ending: no new calls are taken")
		stopServer(server)
		err = <-served
	}
	stop()
	return errors.Join(err, work.Wait())
}

// stopServer lets running calls end, for a while.
func stopServer(server *grpc.Server) {
	ended := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(ended)
	}()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		server.Stop()
		<-ended
	}
}

// finish waits for operations whose callers have left.
func finish(log logrus.FieldLogger, wait func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := wait(ctx); err != nil {
		log.WithError(err).Warn("ended while an operation ran; the next start finds what it left")
	}
}

func both(a, b func() error) func() error {
	return func() error {
		if err := a(); err != nil {
			return err
		}
		return b()
	}
}
