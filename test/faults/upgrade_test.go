//go:build !guest && !faults

package faults

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// recorded are the lines of a file of names and ids that earlier builds gave.
func recorded(t *testing.T, file string) (lines []string) {
	t.Helper()
	f, err := os.Open(filepath.Join("../../pkg/ident/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if line := s.Text(); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	if s.Err() != nil || len(lines) < 5 {
		t.Fatalf("%s: %d lines, %v", file, len(lines), s.Err())
	}
	return lines
}

// Volumes, snapshots and nodes with the ids that earlier builds gave them are
// used and deleted by those ids.
func TestC53RecordedIdsAreUnderstood(t *testing.T) {
	w, ctx := start(t), t.Context()
	nodes := recorded(t, "node-ids")
	for k, line := range recorded(t, "components") {
		quoted, component, _ := strings.Cut(line, "\t")
		name, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			continue // a name that no version takes
		}
		p := versions(w.conn)[k%2]
		id := "tank/" + component
		made := must[*csi.CreateVolumeResponse](t, line)(p.CreateVolume(ctx, creation(name, "nfs", 64*mib, asFilesystem(""))))
		if made.GetVolume().GetVolumeId() != id {
			t.Errorf("%q is made as %q, and was %q", name, made.GetVolume().GetVolumeId(), id)
		}
		w.Restart() // nothing but the id and the pool tells the next daemon
		if v, err := p.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{asFilesystem("")}}); err != nil || v.GetConfirmed() == nil {
			t.Errorf("validate %s: %v, %v", id, v, err)
		}
		node := nodes[k%len(nodes)]
		must[*csi.ControllerPublishVolumeResponse](t, id)(p.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: asFilesystem("")}))
		must[*csi.ControllerUnpublishVolumeResponse](t, id)(p.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node}))
		here := w.Node.ID.String()
		info := must[*csi.ControllerPublishVolumeResponse](t, id)(p.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: here, VolumeCapability: asFilesystem("")}))
		staging := t.TempDir()
		must[*csi.NodeStageVolumeResponse](t, id)(p.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: staging, PublishContext: info.GetPublishContext(), VolumeCapability: asFilesystem("")}))
		must[*csi.NodeUnstageVolumeResponse](t, id)(p.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging}))
		must[*csi.ControllerUnpublishVolumeResponse](t, id)(p.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: here}))

		snapshot := must[*csi.CreateSnapshotResponse](t, "snapshot")(w.v1.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: id})).GetSnapshot().GetSnapshotId()
		if want := id + "@" + component; snapshot != want {
			t.Errorf("snapshot %q is made as %q, and was %q", name, snapshot, want)
		}
		must[*csi.DeleteSnapshotResponse](t, snapshot)(w.v1.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot}))
		must[*csi.DeleteVolumeResponse](t, id)(p.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}))
		if left := w.datasets(component); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}
