//go:build guest

package e2e

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, text string) {
	t.Helper()
	b := make([]byte, len(text))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != text {
		t.Errorf("%s holds %q, %v, want %q", path, b, err, text)
	}
}

func filesystemBytes(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

// A clone is mounted beside its source on one node, while the source is in use,
// and a restored volume that is larger than its source shows the new size; the
// source is deleted under them, and the last of them takes all with it.
func TestC40ClonesBesideTheirSource(t *testing.T) {
	for _, k := range kinds {
		if testing.Short() && k.protocol() == "iscsi" && k.fsType != "xfs" {
			continue // xfs is the one that refuses a second filesystem of one identity
		}
		t.Run(k.name, func(t *testing.T) {
			word := k.word()
			source := create(t, k, "source-"+word)
			source.up()
			writeFile(t, source.data(), "first")
			snapshot := must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(controllerV1().CreateSnapshot(deadline(t),
				&csi.CreateSnapshotRequest{Name: "beside-" + word, SourceVolumeId: source.id})).GetSnapshot()
			writeFile(t, source.data(), "later")

			linked := createV1(t, k, "linked-"+word, k.sizeBytes, fromVolume(source.id), nil)
			larger := createV1(t, k, "larger-"+word, 2*k.sizeBytes, fromSnapshot(snapshot.GetSnapshotId()), nil)
			full := createV1(t, k, "full-"+word, k.sizeBytes, fromSnapshot(snapshot.GetSnapshotId()), map[string]string{"cloneMode": "full"})
			for _, l := range []*live{linked, larger, full} {
				l.up()
			}
			wantFile(t, linked.data(), "later")
			wantFile(t, larger.data(), "first")
			wantFile(t, full.data(), "first")
			writeFile(t, linked.data(), "mine!")
			wantFile(t, source.data(), "later")
			if !k.block {
				was, is := filesystemBytes(t, source.target()), filesystemBytes(t, larger.target())
				if is < was+k.sizeBytes*8/10 {
					t.Errorf("the larger volume's filesystem has %d bytes, its source's %d", is, was)
				}
			}
			source.down()
			wantFile(t, linked.data(), "mine!")
			must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(controllerV1().DeleteSnapshot(deadline(t),
				&csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()}))
			wantFile(t, larger.data(), "first")
			for _, l := range []*live{linked, larger, full} {
				l.down()
			}
		})
	}
}

// Volumes in use are expanded without a new connection.
func TestC38ExpandInUse(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := create(t, k, "grow-"+k.word())
			l.up()
			writeFile(t, l.data(), "kept")
			sessions, err := filepath.Glob("/sys/class/iscsi_session/session*")
			if err != nil {
				t.Fatal(err)
			}
			size := 2 * k.sizeBytes
			answer := must[*csi.ControllerExpandVolumeResponse](t, "ControllerExpandVolume")(controllerV1().ControllerExpandVolume(deadline(t),
				&csi.ControllerExpandVolumeRequest{VolumeId: l.id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: k.capabilityV1()}))
			if answer.GetCapacityBytes() != size {
				t.Errorf("%d bytes, want %d", answer.GetCapacityBytes(), size)
			}
			for range 2 { // a replay is a success
				if answer.GetNodeExpansionRequired() {
					must[*csi.NodeExpandVolumeResponse](t, "NodeExpandVolume")(nodeV1().NodeExpandVolume(deadline(t), &csi.NodeExpandVolumeRequest{
						VolumeId: l.id, VolumePath: l.target(), StagingTargetPath: l.staging(), VolumeCapability: k.capabilityV1(),
						CapacityRange: &csi.CapacityRange{RequiredBytes: size}}))
				}
			}
			if k.block {
				f, err := os.Open(l.data())
				if err != nil {
					t.Fatal(err)
				}
				end, err := f.Seek(0, io.SeekEnd)
				if err = errors.Join(err, f.Close()); err != nil || end != size {
					t.Errorf("the device has %d bytes, %v, want %d", end, err, size)
				}
			} else if is := filesystemBytes(t, l.target()); is < size*8/10 {
				t.Errorf("the filesystem has %d bytes of %d", is, size)
			}
			after, err := filepath.Glob("/sys/class/iscsi_session/session*")
			if err != nil || len(after) != len(sessions) || len(after) > 0 && after[0] != sessions[0] {
				t.Errorf("sessions were %q and are %q, %v", sessions, after, err)
			}
			wantFile(t, l.data(), "kept")
			l.down()
		})
	}
}
