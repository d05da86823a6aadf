//go:build guest

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
	sanityv1 "github.com/tarn-csi/tarn/test/sanity/v1"
)

func controllerV1() csi.ControllerClient { return csi.NewControllerClient(host.Daemon.Conn()) }

func nodeV1() csi.NodeClient { return csi.NewNodeClient(host.Daemon.Conn()) }

// The csi.v1 suite of csi-test passes for every kind of volume.
func TestSanityV1(t *testing.T) {
	var list []sanityv1.Kind
	for _, k := range kinds {
		dir := filepath.Join(host.Daemon.Dir, "sanity")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		kind := sanityv1.Kind{
			Name: k.name, Address: host.Daemon.Endpoint(), Parameters: k.parameters, Block: k.block,
			SizeBytes: k.sizeBytes, ExpandedBytes: 2 * k.sizeBytes, Dir: dir,
			Mutable: map[string]string{"zfs.compression": "lz4"},
			Skips:   sanityv1.NeverRun,
		}
		if k.protocol() == "iscsi" && k.fsType != "ext4" && testing.Short() {
			kind.Only, kind.Why = "Node Service should", "the storage host makes no difference between what is on a zvol: see ext4"
		}
		list = append(list, kind)
	}
	sanityv1.Run(t, list...)
}

// A volume made through one version is used through the other.
func TestVersionsShareVolumes(t *testing.T) {
	for _, k := range []kind{kinds[0], kinds[1]} {
		t.Run(k.name, func(t *testing.T) {
			old := create(t, k, "cross-v0")
			snapshot := must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(controllerV1().CreateSnapshot(deadline(t),
				&csi.CreateSnapshotRequest{Name: "cross", SourceVolumeId: old.id})).GetSnapshot()
			if snapshot.GetSizeBytes() != k.sizeBytes || snapshot.GetSourceVolumeId() != old.id {
				t.Errorf("the snapshot is %v", snapshot)
			}
			bigger := 2 * k.sizeBytes
			grown := must[*csi.ControllerExpandVolumeResponse](t, "ControllerExpandVolume")(controllerV1().ControllerExpandVolume(deadline(t),
				&csi.ControllerExpandVolumeRequest{VolumeId: old.id, CapacityRange: &csi.CapacityRange{RequiredBytes: bigger}}))
			if grown.GetCapacityBytes() != bigger {
				t.Errorf("expanded to %d bytes, want %d", grown.GetCapacityBytes(), bigger)
			}
			must[*csi.DeleteVolumeResponse](t, "DeleteVolume")(controllerV1().DeleteVolume(deadline(t), &csi.DeleteVolumeRequest{VolumeId: old.id}))

			// Its snapshot outlives it; a volume made of it in csi.v1 is used in csi.v0.
			made := createV1(t, k, "cross-v1", k.sizeBytes, fromSnapshot(snapshot.GetSnapshotId()), nil)
			made.up()
			if err := os.WriteFile(made.data(), []byte("through csi.v0"), 0o600); err != nil {
				t.Error(err)
			}
			made.down()
			must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(controllerV1().DeleteSnapshot(deadline(t),
				&csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()}))
			for _, e := range must[*csiv0.ListVolumesResponse](t, "ListVolumes")(controller().ListVolumes(deadline(t), &csiv0.ListVolumesRequest{})).GetEntries() {
				if id := e.GetVolume().GetId(); id == old.id || id == made.id {
					t.Errorf("%s is still listed", id)
				}
			}
		})
	}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func (k kind) capabilityV1() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if k.block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: k.fsType}}
	}
	return c
}

// createV1 makes a volume through csi.v1; everything else of its life may be
// csi.v0.
func createV1(t *testing.T, k kind, name string, bytes int64, source *csi.VolumeContentSource, more map[string]string) *live {
	t.Helper()
	parameters := map[string]string{}
	for _, m := range []map[string]string{k.parameters, more} {
		for key, value := range m {
			parameters[key] = value
		}
	}
	r := must[*csi.CreateVolumeResponse](t, "CreateVolume")(controllerV1().CreateVolume(deadline(t), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, Parameters: parameters,
		VolumeCapabilities: []*csi.VolumeCapability{k.capabilityV1()}, VolumeContentSource: source,
	}))
	return newLive(t, k, name, r.GetVolume().GetVolumeId(), r.GetVolume().GetVolumeContext())
}
