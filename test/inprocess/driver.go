// Package inprocess runs the whole driver in one process, without root: the real
// services, exporters and gRPC servers, on a storage host and a node that are
// fakes as strict as the kernels that they stand for. The socket is real.
//
// It is the fast end of the tests: what it shows in a second the guests of
// test/e2e show on real kernels.
package inprocess

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	attachnfs "github.com/tarn-csi/tarn/pkg/attach/nfs"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/ephemeral"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// The names and addresses of everything.
const (
	DriverName    = "csi.tarn.example"
	NodeName      = "worker-1"
	NodeAddress   = "192.0.2.21"
	OtherNodeID   = "worker-2@192.0.2.22"
	PortalAddress = "192.0.2.10"
)

// Parts are what the driver is made of. A test may put something else in their
// place before it starts.
type Parts struct {
	ZFS       volume.ZFS
	Host      volume.Host
	Exporters map[string]export.Exporter
	// CHAP is the pool's mode.
	CHAP chap.Mode

	Attachers   map[string]attach.Attacher
	Mounter     node.Mounter
	Filesystems node.Filesystems
	NodeHost    node.Host

	// Pods is how volumes of pods are served: none are unless it has a pool. Their
	// controller is this process's own, or what Controller makes of it.
	Pods       ephemeral.Config
	Controller func(ephemeral.Controller) ephemeral.Controller

	// Before is what stands in front of the services, outside of the driver's own
	// interceptor.
	Before []grpc.UnaryServerInterceptor
	// Register puts the services on the server.
	Register func(*grpc.Server, *csi.Identity, *csi.Controller, *csi.Node)
}

// Driver is a driver that serves, and the world around it.
type Driver struct {
	Endpoint string
	Storage  *storage.Host
	Node     *Node
	Volumes  *volume.Service

	t      testing.TB
	change []func(*Parts)
	log    *logrus.Logger
	socket string
	stop   func()
}

// Start starts a driver on a storage host and a node of its own, and stops it
// at the end of the test. Each change may replace parts; it is called at every
// start.
func Start(t testing.TB, change ...func(*Parts)) *Driver {
	t.Helper()
	h := storage.New(t)
	d := &Driver{
		Storage: h, Node: newNode(t, h, NodeName, NodeAddress),
		t: t, change: change, log: storage.Quiet(), socket: h.Dir("csi.sock"),
	}
	d.Endpoint = "unix://" + d.socket
	d.start()
	t.Cleanup(d.Stop)
	return d
}

// startPatience is how long a start is waited for; what a test broke may keep the
// driver from getting ready at all.
const startPatience = 5 * time.Second

func (d *Driver) waitStarted() {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	for pause := time.Millisecond; d.Volumes.Ready() != nil; pause = min(2*pause, 100*time.Millisecond) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Restart ends the daemon in order and starts another on what it leaves.
func (d *Driver) Restart() {
	d.t.Helper()
	d.Stop()
	d.start()
}

// Stop ends the daemon as a request to end does. It may be called again.
func (d *Driver) Stop() {
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
}

// Logger is what the driver logs with. Nobody hears it unless a test gives it an
// output and a level.
func (d *Driver) Logger() *logrus.Logger { return d.log }

func (d *Driver) parts() Parts {
	pool := d.Storage.ZFS()
	p := Parts{
		ZFS: pool, Host: pool, Exporters: d.Storage.Exporters(d.log), CHAP: chap.Derived,
		Attachers:   map[string]attach.Attacher{volume.NFS: nfsClient{d.Node}, volume.ISCSI: initiator{d.Node}},
		Mounter:     d.Node,
		Filesystems: filesystems{d.Node},
		NodeHost:    d.Node,
		Register:    csi.Register,
		Pods:        ephemeral.Config{Protocols: []string{volume.NFS, volume.ISCSI}, DefaultBytes: 64 << 20, MaxBytes: 1 << 30, MaxVolumes: 20},
		Controller:  func(c ephemeral.Controller) ephemeral.Controller { return c },
	}
	for _, change := range d.change {
		change(&p)
	}
	return p
}

// master is the key from which every CHAP password derives.
var master = chap.Key("0123456789abcdef0123456789abcdef")

func (d *Driver) start() {
	d.t.Helper()
	p := d.parts()
	volumes, err := volume.New(volume.Config{
		Driver: DriverName,
		Pools: []volume.PoolConfig{{
			Name: "tank", Parent: storage.Parent, Addresses: []netip.Addr{netip.MustParseAddr(PortalAddress)},
			ISCSIPort: 3260, CHAP: p.CHAP,
		}},
		Naming: d.Storage.Naming, MasterKey: master, Exporters: p.Exporters,
		ZFS: p.ZFS, Host: p.Host, Secrets: chap.Store{Dir: d.Storage.Dir("chap")},
		Operation: 10 * time.Second, Rest: time.Minute, LockDir: d.Storage.Dir("run"), Log: d.log,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	n, err := node.New(node.Config{
		NodeID: d.Node.ID, Naming: d.Storage.Naming, NodeKey: chap.NodeKey(master, d.Node.ID.Name),
		StateDir: filepath.Join(d.Storage.Dir("state"), "node"), Attachers: p.Attachers, Mounter: p.Mounter,
		Filesystems: p.Filesystems, Host: p.NodeHost, NFSOptions: attachnfs.Options, Log: d.log,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	p.Pods.Controller, p.Pods.Node, p.Pods.Log = p.Controller(volumes), n, d.log
	p.Pods.Dir = filepath.Join(d.Storage.Dir("state"), "ephemeral")
	pods, err := ephemeral.New(p.Pods)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Volumes = volumes
	identity := &csi.Identity{Name: DriverName, Version: "test", Controller: true, Ready: volumes.Ready}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(append(p.Before, csi.Interceptor(d.log, time.Minute))...))
	p.Register(server, identity, &csi.Controller{Volumes: volumes}, &csi.Node{Node: n, Ephemeral: pods})

	ctx, cancel := context.WithCancel(context.Background())
	worked, served := make(chan struct{}), make(chan error, 1)
	go func() { volumes.Run(ctx); close(worked) }()
	d.waitStarted()
	go func() { served <- server.Serve(listener) }()
	d.stop = func() {
		server.GracefulStop()
		if err := <-served; err != nil {
			d.t.Errorf("serve: %v", err)
		}
		cancel()
		<-worked
		last, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		if err := volumes.Drain(last); err != nil {
			d.t.Error(err)
		}
		if err := volumes.Close(); err != nil {
			d.t.Error(err)
		}
	}
}
