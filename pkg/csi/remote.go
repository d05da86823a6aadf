package csi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Remote is the controller in another process, asked over its socket. It speaks
// the terms of the domain, and its errors have the kinds that the controller's had.
type Remote struct {
	socket string
	conn   *grpc.ClientConn
	client csi.ControllerClient
}

// remoteBackoff is the longest pause before a controller that was away is tried
// again. It costs nothing to ask a socket of the same host.
const remoteBackoff = time.Second

// NewRemote returns the controller that listens, now or later, at the path of a
// socket.
func NewRemote(socket string) (*Remote, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: remoteBackoff / 10, Multiplier: 2, MaxDelay: remoteBackoff},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return nil, err
	}
	return &Remote{socket: socket, conn: conn, client: csi.NewControllerClient(conn)}, nil
}

// Close ends the connection.
func (r *Remote) Close() error { return r.conn.Close() }

// Get is ControllerGetVolume.
func (r *Remote) Get(ctx context.Context, volumeID string) (volume.Volume, error) {
	a, err := r.client.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: volumeID})
	if err != nil {
		return volume.Volume{}, r.fault(err)
	}
	v := volumeOf(a.GetVolume())
	v.Nodes = a.GetStatus().GetPublishedNodeIds()
	return v, nil
}

// Create is CreateVolume, of a volume without a source.
func (r *Remote) Create(ctx context.Context, q volume.CreateRequest) (volume.Volume, error) {
	m := &csi.CreateVolumeRequest{
		Name:              q.Name,
		CapacityRange:     &csi.CapacityRange{RequiredBytes: q.Size.RequiredBytes, LimitBytes: q.Size.LimitBytes},
		Parameters:        q.Parameters,
		MutableParameters: q.Mutable,
	}
	for _, c := range q.Capabilities {
		m.VolumeCapabilities = append(m.VolumeCapabilities, capabilityMessage(c))
	}
	a, err := r.client.CreateVolume(ctx, m)
	if err != nil {
		return volume.Volume{}, r.fault(err)
	}
	return volumeOf(a.GetVolume()), nil
}

// Publish is ControllerPublishVolume.
func (r *Remote) Publish(ctx context.Context, q volume.PublishRequest) (map[string]string, error) {
	a, err := r.client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: q.VolumeID, NodeId: q.NodeID, VolumeCapability: capabilityMessage(q.Capability), Readonly: q.ReadOnly, Secrets: q.Secrets,
	})
	if err != nil {
		return nil, r.fault(err)
	}
	return a.GetPublishContext(), nil
}

// Unpublish is ControllerUnpublishVolume.
func (r *Remote) Unpublish(ctx context.Context, volumeID, nodeID string) error {
	_, err := r.client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volumeID, NodeId: nodeID})
	return r.fault(err)
}

// Delete is DeleteVolume.
func (r *Remote) Delete(ctx context.Context, volumeID string) error {
	_, err := r.client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volumeID})
	return r.fault(err)
}

func volumeOf(m *csi.Volume) volume.Volume {
	return volume.Volume{ID: m.GetVolumeId(), CapacityBytes: m.GetCapacityBytes(), Context: m.GetVolumeContext()}
}

// capabilityMessage is what capability reads.
func capabilityMessage(c access.Capability) *csi.VolumeCapability {
	m := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_Mode(c.Mode)}}
	if c.Type == access.Block {
		m.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return m
	}
	m.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: c.FSType, MountFlags: c.MountFlags}}
	return m
}

// fault turns an answer's code back into what it was made of.
func (r *Remote) fault(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Aborted:
		return fault.New(fault.Busy, "%s", s.Message()) // one of two kinds
	case codes.Unavailable:
		return fault.New(fault.Unavailable, "the controller at %s: %s", r.socket, s.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("the controller at %s: %s: %w", r.socket, s.Message(), context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("the controller at %s: %s: %w", r.socket, s.Message(), context.Canceled)
	}
	for kind, code := range codeByKind {
		if code == s.Code() {
			return fault.New(kind, "%s", s.Message())
		}
	}
	return errors.New(s.Message())
}
