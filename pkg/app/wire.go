package app

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	attachiscsi "github.com/tarn-csi/tarn/pkg/attach/iscsi"
	attachnfs "github.com/tarn-csi/tarn/pkg/attach/nfs"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	exportiscsi "github.com/tarn-csi/tarn/pkg/export/iscsi"
	exportnfs "github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/pulse"
	"github.com/tarn-csi/tarn/pkg/release"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// storageHost is volume.Host on this machine.
type storageHost struct {
	*zfs.Client
	*release.Releaser
}

// hostDevices is volume.Devices on this machine.
type hostDevices struct {
	*release.Releaser
	filesystems *mount.Filesystems
}

func (h hostDevices) Filesystem(ctx context.Context, device string) (fsType, what string, err error) {
	c, err := h.filesystems.Probe(ctx, device)
	return c.FSType, c.What, err
}

// newVolumes wires the storage host's side; a passive one only looks.
func newVolumes(c config.Config, master chap.Key, runner *run.Runner, log logrus.FieldLogger, passive bool) (*volume.Service, error) {
	client, err := zfs.New(runner, c.OperationTimeout)
	if err != nil {
		return nil, err
	}
	naming, err := c.Naming()
	if err != nil {
		return nil, err
	}
	networks, err := c.Networks()
	if err != nil {
		return nil, err
	}
	exporters := map[string]export.Exporter{}
	if c.Serves(volume.NFS) {
		exporters[volume.NFS] = exportnfs.New(runner, exportnfs.HostPaths, naming.Instance(), log)
	}
	if c.Serves(volume.ISCSI) {
		exporters[volume.ISCSI] = exportiscsi.New(exportiscsi.Config{
			FS:       configfs.NewHost(configfs.Root),
			Naming:   naming,
			LockPath: configfs.DefaultLockPath,
			Log:      log,
			Runner:   runner,
			Passive:  passive,
			Remake:   client.RemakeDevice,
			Announce: exportiscsi.AnnounceZvols,
		})
	}
	var pools []volume.PoolConfig
	for _, p := range c.Pools {
		v := volume.PoolConfig{Name: p.Name, Parent: p.Parent, ISCSIPort: p.ISCSIPort, CHAP: p.CHAP}
		for _, a := range p.Addresses {
			addr, err := ident.ParseAddress(a)
			if err != nil {
				return nil, err
			}
			v.Addresses = append(v.Addresses, addr)
		}
		pools = append(pools, v)
	}
	return volume.New(volume.Config{
		Driver:       c.DriverName,
		Pools:        pools,
		Naming:       naming,
		MasterKey:    master,
		NodeNetworks: networks,
		Exporters:    exporters,
		ZFS:          client,
		Host:         storageHost{client, release.New(runner)},
		Devices:      hostDevices{release.New(runner), mount.NewFilesystems(runner)},
		Leavings:     newLeavings(c, naming, runner),
		Secrets:      chap.Store{Dir: filepath.Join(c.StateDir, "chap")},
		Operation:    c.OperationTimeout,
		Rest:         c.ReconcileInterval,
		Passive:      passive,

		DeleteForeignSnapshots: c.DeleteForeignSnapshots,
		LockDir:                c.RunDir,
		Log:                    log,
	})
}

func newNode(c config.Config, k keys, runner *run.Runner, log logrus.FieldLogger) (*node.Service, error) {
	naming, err := c.Naming()
	if err != nil {
		return nil, err
	}
	id, err := nodeID(c)
	if err != nil {
		return nil, err
	}
	attachers := map[string]attach.Attacher{}
	if c.Serves(volume.NFS) {
		attachers[volume.NFS] = attachnfs.New(runner)
	}
	if c.Serves(volume.ISCSI) {
		attachers[volume.ISCSI] = attachiscsi.New(runner, attachiscsi.Config{ReplacementTimeout: c.ISCSIOutage})
	}
	return node.New(node.Config{
		NodeID:      id,
		Naming:      naming,
		NodeKey:     k.node,
		StateDir:    filepath.Join(c.StateDir, "node"),
		Attachers:   attachers,
		Mounter:     mount.New(runner),
		Filesystems: mount.NewFilesystems(runner),
		Host:        node.NewTools(runner),
		NFSOptions:  attachnfs.Options,
		Rest:        c.ReconcileInterval,
		Log:         log,
	})
}

// nodeID is this node's id. Without configured addresses it is the source
// address of the route to the first portal.
func nodeID(c config.Config) (ident.NodeID, error) {
	name, err := ident.NodeName(c.NodeName)
	if err != nil {
		return ident.NodeID{}, err
	}
	id := ident.NodeID{Name: name}
	for _, a := range c.NodeAddresses {
		addr, err := ident.ParseAddress(a)
		if err != nil {
			return id, err
		}
		id.Addresses = append(id.Addresses, addr)
	}
	if len(id.Addresses) == 0 {
		addr, err := sourceAddress(c)
		if err != nil {
			return id, err
		}
		id.Addresses = []netip.Addr{addr}
	}
	if n := len(id.String()); n > ident.MaxNodeID {
		return id, fault.New(fault.Invalid, "the node id %s has %d bytes of at most %d: give fewer --node-address", id, n, ident.MaxNodeID)
	}
	return id, nil
}

func sourceAddress(c config.Config) (netip.Addr, error) {
	portals := c.PortalHints
	for _, p := range c.Pools {
		portals = append(portals, p.Addresses...)
	}
	if len(portals) == 0 {
		return netip.Addr{}, fault.New(fault.Invalid, "the node's address is unknown: give --node-address, or --address with the storage host's")
	}
	// Connecting a UDP socket sends nothing and asks for the route.
	conn, err := net.Dial("udp", net.JoinHostPort(portals[0], "3260"))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the route to portal %s gives the node's address, and there is none: give --node-address: %w", portals[0], err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return ident.ParseAddress(addr.String())
}

// healthInterval is how often the node's side is looked at, so that a probe
// answers from what was last seen.
const healthInterval = 30 * time.Second

// health remembers the last answer of a check that may take time.
type health struct {
	check func(context.Context) error
	pulse *pulse.Pulse
	mu    sync.Mutex
	err   error
}

func newHealth(check func(context.Context) error) *health {
	return &health{check: check, pulse: pulse.New("the look at the node's tools", 4*healthInterval), err: fault.New(fault.Unavailable, "the node service is starting")}
}

func (h *health) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *health) run(ctx context.Context) {
	for {
		one, cancel := context.WithTimeout(ctx, healthInterval)
		err := h.check(one)
		cancel()
		h.pulse.Beat()
		h.mu.Lock()
		h.err = err
		h.mu.Unlock()
		pause := healthInterval
		if err != nil {
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
