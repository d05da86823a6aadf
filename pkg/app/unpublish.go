package app

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Unpublish closes a volume to a node, given by its name or its id, and returns
// the id. A daemon that listens on the endpoint does it, as it would for its
// orchestrator; where none does, this process holds the pool meanwhile.
//
// fault.NotFound when the volume does not exist or is not published there,
// saying where it is.
func Unpublish(ctx context.Context, c config.Config, log logrus.FieldLogger, volumeID, node string) (string, error) {
	if c.Mode == config.Node {
		return "", notHere()
	}
	p, end, err := publications(ctx, c, log, volumeID)
	if err != nil {
		return "", err
	}
	id, err := unpublish(ctx, p, volumeID, node)
	return id, errors.Join(err, end())
}

// publisher is who knows and ends publications.
type publisher interface {
	// nodes are the ids of the nodes that a volume is published to.
	nodes(ctx context.Context, volumeID string) ([]string, error)
	// Unpublish ends one.
	Unpublish(ctx context.Context, volumeID, nodeID string) error
}

func unpublish(ctx context.Context, p publisher, volumeID, node string) (string, error) {
	nodes, err := p.nodes(ctx, volumeID)
	if err != nil {
		return "", err
	}
	id, ok := findNode(nodes, node)
	if !ok {
		where := "it is published to no node"
		if len(nodes) > 0 {
			where = "it is published to " + strings.Join(nodes, ", ")
		}
		return "", fault.New(fault.NotFound, "volume %s is not published to node %s: %s", ident.Printable(volumeID), ident.Printable(node), where)
	}
	return id, p.Unpublish(ctx, volumeID, id)
}

// findNode returns the node id that is meant by an id or a name. A publication is
// keyed by the name, so of an id that counts alone.
func findNode(nodes []string, want string) (string, bool) {
	name, _, _ := strings.Cut(want, "@")
	mapped, err := ident.NodeName(name)
	for _, id := range nodes {
		if have, _, _ := strings.Cut(id, "@"); have == name || err == nil && have == mapped {
			return id, true
		}
	}
	return "", false
}

// publications returns who is to be asked about a volume, and what ends that.
func publications(ctx context.Context, c config.Config, log logrus.FieldLogger, volumeID string) (publisher, func() error, error) {
	path, err := config.SocketPath(c.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case err == nil:
		if err := conn.Close(); err != nil {
			return nil, nil, err
		}
		client, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, err
		}
		return daemon{csi.NewControllerClient(client)}, client.Close, nil
	case !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	keys, err := readKeys(c)
	if err != nil {
		return nil, nil, err
	}
	if err := Enter(c.HostRoot); err != nil {
		return nil, nil, err
	}
	volumes, err := newVolumes(c, keys.master, run.New(log), log, false)
	if err != nil {
		return nil, nil, err
	}
	if err := volumes.Open(ctx, volumeID); err != nil {
		return nil, nil, errors.Join(err, volumes.Close())
	}
	return offline{volumes}, volumes.Close, nil
}

// daemon asks the daemon that serves the volumes.
type daemon struct{ csi.ControllerClient }

func (d daemon) nodes(ctx context.Context, volumeID string) ([]string, error) {
	r, err := d.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: volumeID})
	return r.GetStatus().GetPublishedNodeIds(), plain(err)
}

func (d daemon) Unpublish(ctx context.Context, volumeID, nodeID string) error {
	_, err := d.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volumeID, NodeId: nodeID})
	return plain(err)
}

// plain leaves of the daemon's answer what a person wants to read.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(status.Convert(err).Message())
}
