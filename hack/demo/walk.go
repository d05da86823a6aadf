package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
	"github.com/tarn-csi/tarn/test/harness"
)

const (
	volumeBytes = 64 << 20
	dataBytes   = 4 << 20
)

// subject is a volume to be shown.
type subject struct {
	label      string
	parameters map[string]string
	capability *csiv0.VolumeCapability
	block      bool
}

func volumes() []subject {
	mode := &csiv0.VolumeCapability_AccessMode{Mode: csiv0.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	filesystem := func(t string) *csiv0.VolumeCapability {
		return &csiv0.VolumeCapability{AccessMode: mode, AccessType: &csiv0.VolumeCapability_Mount{
			Mount: &csiv0.VolumeCapability_MountVolume{FsType: t}}}
	}
	return []subject{
		{label: "nfs", parameters: map[string]string{"protocol": "nfs"}, capability: filesystem("")},
		{label: "iscsi-ext4", parameters: map[string]string{"protocol": "iscsi"}, capability: filesystem("ext4")},
		{label: "iscsi-block", parameters: map[string]string{"protocol": "iscsi"}, block: true,
			capability: &csiv0.VolumeCapability{AccessMode: mode, AccessType: &csiv0.VolumeCapability_Block{
				Block: &csiv0.VolumeCapability_BlockVolume{}}}},
	}
}

// walk takes one volume through its life.
type walk struct {
	*show
	daemon *harness.Daemon
	volume subject
	dir    string

	id         string
	nodeID     string
	attributes map[string]string
	info       map[string]string
	sum        [sha256.Size]byte
}

func (w *walk) staging() string { return filepath.Join(w.dir, "staging") }
func (w *walk) target() string  { return filepath.Join(w.dir, "target") }

func (w *walk) run(ctx context.Context) error {
	// The orchestrator of csi.v0 makes the paths.
	if err := os.MkdirAll(w.staging(), 0o755); err != nil {
		return err
	}
	if !w.volume.block {
		if err := os.MkdirAll(w.target(), 0o755); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		what string
		do   func(context.Context) (string, error)
	}{
		{"CreateVolume", w.create},
		{"ControllerPublishVolume", w.controllerPublish},
		{"NodeStageVolume", w.nodeStage},
		{"NodePublishVolume", w.nodePublish},
		{"write", w.write},
		{"restart the daemon", w.restart},
		{"read back", w.read},
		{"NodeUnpublishVolume", w.nodeUnpublish},
		{"NodeUnstageVolume", w.nodeUnstage},
		{"ControllerUnpublishVolume", w.controllerUnpublish},
		{"DeleteVolume", w.remove},
	} {
		if err := w.step(w.volume.label, s.what, func() (string, error) { return s.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) controller() csiv0.ControllerClient { return csiv0.NewControllerClient(w.daemon.Conn()) }
func (w *walk) node() csiv0.NodeClient             { return csiv0.NewNodeClient(w.daemon.Conn()) }

func (w *walk) create(ctx context.Context) (string, error) {
	r, err := w.controller().CreateVolume(ctx, &csiv0.CreateVolumeRequest{
		Name:               "pvc-" + w.volume.label,
		CapacityRange:      &csiv0.CapacityRange{RequiredBytes: volumeBytes},
		VolumeCapabilities: []*csiv0.VolumeCapability{w.volume.capability},
		Parameters:         w.volume.parameters,
	})
	if err != nil {
		return "", err
	}
	w.id, w.attributes = r.GetVolume().GetId(), r.GetVolume().GetAttributes()
	return fmt.Sprintf("%s, %d MiB", w.id, r.GetVolume().GetCapacityBytes()>>20), nil
}

func (w *walk) controllerPublish(ctx context.Context) (string, error) {
	id, err := w.node().NodeGetId(ctx, &csiv0.NodeGetIdRequest{})
	if err != nil {
		return "", err
	}
	w.nodeID = id.GetNodeId()
	r, err := w.controller().ControllerPublishVolume(ctx, &csiv0.ControllerPublishVolumeRequest{
		VolumeId: w.id, NodeId: w.nodeID, VolumeCapability: w.volume.capability, VolumeAttributes: w.attributes,
	})
	if err != nil {
		return "", err
	}
	w.info = r.GetPublishInfo()
	if w.info["protocol"] == "nfs" {
		return "open to " + w.nodeID + " at " + w.info["server"] + ":" + w.info["share"], nil
	}
	return "open to " + w.nodeID + " at " + w.info["portals"], nil
}

func (w *walk) nodeStage(ctx context.Context) (string, error) {
	_, err := w.node().NodeStageVolume(ctx, &csiv0.NodeStageVolumeRequest{
		VolumeId: w.id, PublishInfo: w.info, StagingTargetPath: w.staging(),
		VolumeCapability: w.volume.capability, VolumeAttributes: w.attributes,
	})
	return "", err
}

func (w *walk) nodePublish(ctx context.Context) (string, error) {
	_, err := w.node().NodePublishVolume(ctx, &csiv0.NodePublishVolumeRequest{
		VolumeId: w.id, PublishInfo: w.info, StagingTargetPath: w.staging(), TargetPath: w.target(),
		VolumeCapability: w.volume.capability, VolumeAttributes: w.attributes,
	})
	return w.target(), err
}

// data is the file, or the device, that is written and read.
func (w *walk) data() string {
	if w.volume.block {
		return w.target()
	}
	return filepath.Join(w.target(), "data")
}

func (w *walk) write(context.Context) (string, error) {
	buf := make([]byte, dataBytes)
	if _, err := rand.Read(buf); err != nil {
		return "", err
	}
	w.sum = sha256.Sum256(buf)
	flags := os.O_WRONLY
	if !w.volume.block {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(w.data(), flags, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Write(buf); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d MiB, sha256 %x", dataBytes>>20, w.sum[:4]), f.Sync()
}

func (w *walk) restart(ctx context.Context) (string, error) {
	if err := w.daemon.Stop(ctx); err != nil {
		return "", err
	}
	return "", w.daemon.Start(ctx)
}

func (w *walk) read(context.Context) (string, error) {
	f, err := os.Open(w.data())
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, dataBytes); err != nil {
		return "", err
	}
	if [sha256.Size]byte(h.Sum(nil)) != w.sum {
		return "", fmt.Errorf("the data differs from what was written")
	}
	return "the same", nil
}

func (w *walk) nodeUnpublish(ctx context.Context) (string, error) {
	_, err := w.node().NodeUnpublishVolume(ctx, &csiv0.NodeUnpublishVolumeRequest{VolumeId: w.id, TargetPath: w.target()})
	return "", err
}

func (w *walk) nodeUnstage(ctx context.Context) (string, error) {
	_, err := w.node().NodeUnstageVolume(ctx, &csiv0.NodeUnstageVolumeRequest{VolumeId: w.id, StagingTargetPath: w.staging()})
	return "", err
}

func (w *walk) controllerUnpublish(ctx context.Context) (string, error) {
	_, err := w.controller().ControllerUnpublishVolume(ctx, &csiv0.ControllerUnpublishVolumeRequest{VolumeId: w.id, NodeId: w.nodeID})
	return "", err
}

func (w *walk) remove(ctx context.Context) (string, error) {
	_, err := w.controller().DeleteVolume(ctx, &csiv0.DeleteVolumeRequest{VolumeId: w.id})
	return "", err
}
