package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	volumeBytes = 16 << 20
	nodeID      = "node-1@127.0.0.1"
	rpcTimeout  = 5 * time.Minute
)

// tarn is the driver's side of the measurement.
type tarn struct{ controller csi.ControllerClient }

func newTarn(conn grpc.ClientConnInterface) *tarn {
	return &tarn{controller: csi.NewControllerClient(conn)}
}

func capability(protocol string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if protocol == "iscsi" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	}
	return c
}

func request(protocol, name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: volumeBytes},
		Parameters: map[string]string{"protocol": protocol}, VolumeCapabilities: []*csi.VolumeCapability{capability(protocol)},
	}
}

func (d *tarn) create(ctx context.Context, protocol, name string) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := d.controller.CreateVolume(ctx, request(protocol, name))
		return err
	})
}

// again repeats a call that met the driver's own work on the same volume, or waited
// in vain for udev (to name a zvol, or to let go of it), as an orchestrator does.
func again(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	for {
		err := call(ctx)
		if ctx.Err() != nil || !slices.Contains([]codes.Code{codes.Aborted, codes.Unavailable, codes.FailedPrecondition}, status.Code(err)) {
			return err
		}
	}
}

// steps are the life of volumes whose names begin with prefix.
func (d *tarn) steps(protocol, prefix string) []step {
	volume := func(i int) string { return fmt.Sprintf("p/%s-%d", prefix, i) }
	var mu sync.Mutex
	snapshots := map[int]string{}
	rpc := func(call func(ctx context.Context, i int) error) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			return again(ctx, func(ctx context.Context) error { return call(ctx, i) })
		}
	}
	return []step{
		{"create", func(ctx context.Context, i int) error {
			return d.create(ctx, protocol, fmt.Sprintf("%s-%d", prefix, i))
		}},
		{"publish", rpc(func(ctx context.Context, i int) error {
			_, err := d.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: volume(i), NodeId: nodeID, VolumeCapability: capability(protocol)})
			return err
		})},
		{"unpublish", rpc(func(ctx context.Context, i int) error {
			_, err := d.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume(i), NodeId: nodeID})
			return err
		})},
		{"snapshot", rpc(func(ctx context.Context, i int) error {
			r, err := d.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: volume(i), Name: fmt.Sprintf("%s-s-%d", prefix, i)})
			mu.Lock()
			defer mu.Unlock()
			snapshots[i] = r.GetSnapshot().GetSnapshotId()
			return err
		})},
		{"clone", rpc(func(ctx context.Context, i int) error {
			mu.Lock()
			id := snapshots[i]
			mu.Unlock()
			q := request(protocol, fmt.Sprintf("%s-c-%d", prefix, i))
			q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
			_, err := d.controller.CreateVolume(ctx, q)
			return err
		})},
		{"", rpc(func(ctx context.Context, i int) error {
			_, err := d.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: fmt.Sprintf("p/%s-c-%d", prefix, i)})
			if err != nil {
				return err
			}
			mu.Lock()
			id := snapshots[i]
			mu.Unlock()
			_, err = d.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
			return err
		})},
		{"delete", rpc(func(ctx context.Context, i int) error {
			_, err := d.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume(i)})
			return err
		})},
	}
}
