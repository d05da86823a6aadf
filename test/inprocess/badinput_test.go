package inprocess

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// bad is a call that no driver may take.
type bad struct {
	what string
	want codes.Code
	// hint is in the message, so that its reader knows what to change.
	hint string
	call func(context.Context, csi.ControllerClient) error
}

func createBad(what string, want codes.Code, hint string, change func(*csi.CreateVolumeRequest)) bad {
	return bad{"CreateVolume, " + what, want, hint, func(ctx context.Context, c csi.ControllerClient) error {
		r := &csi.CreateVolumeRequest{
			Name: "bad", CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20},
			Parameters:         map[string]string{"protocol": "iscsi"},
			VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
		}
		change(r)
		_, err := c.CreateVolume(ctx, r)
		return err
	}}
}

func mountCapability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

func blockCapability() *csi.VolumeCapability {
	c := mountCapability("")
	c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	return c
}

func sizes(required, limit int64) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
	}
}

func parameter(key, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters[key] = value }
}

func source(snapshot, volume string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}}
		if volume != "" {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume}}}
		}
	}
}

var badCreations = []bad{
	createBad("no name", codes.InvalidArgument, "name", func(r *csi.CreateVolumeRequest) { r.Name = "" }),
	createBad("no capability", codes.InvalidArgument, "capability", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }),
	createBad("a negative size", codes.InvalidArgument, "negative", sizes(-1, 0)),
	createBad("a negative limit", codes.InvalidArgument, "negative", sizes(0, -1)),
	createBad("a limit below what is required", codes.InvalidArgument, "limit", sizes(64<<20, 32<<20)),
	createBad("an enormous size", codes.OutOfRange, "bytes", sizes(1<<62, 0)),
	createBad("the largest number", codes.OutOfRange, "bytes", sizes(1<<63-1, 1<<63-1)),
	createBad("a limit of one byte", codes.OutOfRange, "limit", sizes(0, 1)),
	createBad("less than mkfs needs", codes.OutOfRange, "ext4", sizes(2<<20, 0)),
	createBad("a thick volume beyond the pool", codes.ResourceExhausted, "space", func(r *csi.CreateVolumeRequest) {
		sizes(1<<49, 0)(r)
		r.Parameters["thin"] = "false"
	}),
	createBad("an unknown parameter", codes.InvalidArgument, "known are", parameter("compression", "lz4")),
	createBad("a native property beyond the list", codes.InvalidArgument, "known are", parameter("zfs.mountpoint", "/etc")),
	createBad("a property with options", codes.InvalidArgument, "zfs.compression", parameter("zfs.compression", "lz4 -o mountpoint=/etc")),
	createBad("an unknown pool", codes.InvalidArgument, "tank", parameter("pool", "../tank")),
	createBad("an unknown protocol", codes.InvalidArgument, "iscsi", parameter("protocol", "smb")),
	createBad("a parameter of the other protocol", codes.InvalidArgument, "squash", parameter("squash", "all")),
	createBad("an unknown filesystem", codes.InvalidArgument, "ext4", parameter("fsType", "ntfs")),
	createBad("a volume block that is no power of two", codes.InvalidArgument, "power of two", parameter("zfs.volblocksize", "3000")),
	createBad("block over nfs", codes.InvalidArgument, "iscsi", func(r *csi.CreateVolumeRequest) {
		r.Parameters["protocol"], r.VolumeCapabilities = "nfs", []*csi.VolumeCapability{blockCapability()}
	}),
	createBad("block and mount over nfs", codes.InvalidArgument, "iscsi", func(r *csi.CreateVolumeRequest) {
		r.Parameters["protocol"], r.VolumeCapabilities = "nfs", []*csi.VolumeCapability{mountCapability(""), blockCapability()}
	}),
	createBad("a filesystem on two nodes", codes.InvalidArgument, "nfs", func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}),
	createBad("an unknown access mode", codes.InvalidArgument, "access mode", func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities[0].AccessMode.Mode = 99
	}),
	createBad("a capability of no type", codes.InvalidArgument, "block or mount", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }),
	createBad("a source that is no snapshot", codes.NotFound, "snapshot", source("tank/none@none", "")),
	createBad("a source that is no id", codes.NotFound, "snapshot", source("../../etc/passwd", "")),
	createBad("a source that is no volume", codes.NotFound, "does not exist", source("", "tank/none")),
	createBad("an empty source", codes.InvalidArgument, "source", func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }),
	createBad("an unknown mutable parameter", codes.InvalidArgument, "zfs.compression", func(r *csi.CreateVolumeRequest) {
		r.MutableParameters = map[string]string{"zfs.volblocksize": "8K"}
	}),
}

// strangeIDs could not be of this driver, or name nothing.
var strangeIDs = []string{
	"../../etc", "tank/../csi", "tank/a@b", "tank/a%b", "tank/a,b", "-r", "tank/-r/..", "tank/a\x00b", "tank//a", "/tank/a", "tank/a/b",
	"tank/.tombstones", "tank/ ", "tank/" + strings.Repeat("n", 200), "tänk/a", "tank/none", "other/a", "@", "tank", "\t", "tank/a\nb",
}

// strangeNodes are no nodes, or would open a volume to more than one.
var strangeNodes = []string{
	"*", "worker-1@*", "worker-1@0.0.0.0/0", "worker-1@192.0.2.0/24", "worker-1@192.0.2.21(rw)", "worker-1@192.0.2.21,rw",
	"worker-1@host.example", "worker-1@", "@192.0.2.21", "worker-1", "worker-1@0.0.0.0", "worker-1@224.0.0.1", "worker_1@192.0.2.21",
	"worker-1@192.0.2.21 192.0.2.22", "../a@192.0.2.21", "worker-1@[::]", strings.Repeat("w", 120) + "@192.0.2.21", "worker-1@\x00",
}

// What is wrong with a request is said, with the code of the table, and nothing
// is made, opened or destroyed.
func TestBadInput(t *testing.T) {
	d := Start(t)
	conn, err := grpc.NewClient(d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := csi.NewControllerClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	made, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "good", CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20}, Parameters: map[string]string{"protocol": "nfs"},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}})
	if err != nil {
		t.Fatal(err)
	}
	good := made.GetVolume().GetVolumeId()
	cases := slices.Concat(badCreations, badIDs(), badUses(good))
	for _, b := range cases {
		t.Run(b.what, func(t *testing.T) {
			before := d.state(t)
			err := b.call(ctx, c)
			if got := status.Code(err); got != b.want {
				t.Fatalf("%v (%v), want %v", got, err, b.want)
			}
			text := status.Convert(err).Message()
			if b.want != codes.OK && (!strings.Contains(text, b.hint) || text == "") {
				t.Errorf("the message does not speak of %q: %s", b.hint, text)
			}
			if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\n\t") {
				t.Errorf("the message is not printable: %q", text)
			}
			if after := d.state(t); !slices.Equal(before, after) {
				t.Errorf("changed: before %q, after %q", before, after)
			}
		})
	}
}

// badIDs are calls about what is not there: to delete and to unpublish it is
// done already.
func badIDs() []bad {
	var list []bad
	for _, id := range strangeIDs {
		if !utf8.ValidString(id) {
			continue // gRPC itself refuses it
		}
		add := func(rpc string, want codes.Code, call func(context.Context, csi.ControllerClient) error) {
			list = append(list, bad{fmt.Sprintf("%s of %q", rpc, id), want, "", call})
		}
		add("DeleteVolume", codes.OK, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
			return err
		})
		add("DeleteSnapshot", codes.OK, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
			return err
		})
		add("ControllerUnpublishVolume", codes.OK, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: OtherNodeID})
			return err
		})
		add("ControllerPublishVolume", codes.NotFound, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: OtherNodeID, VolumeCapability: mountCapability("")})
			return err
		})
		add("CreateSnapshot", codes.NotFound, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id})
			return err
		})
		add("ControllerExpandVolume", codes.NotFound, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}})
			return err
		})
		add("ControllerModifyVolume", codes.NotFound, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"zfs.compression": "lz4"}})
			return err
		})
		add("ControllerGetVolume", codes.NotFound, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
			return err
		})
		add("ValidateVolumeCapabilities", codes.NotFound, func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}})
			return err
		})
	}
	return list
}

// badUses are calls about a volume that is there.
func badUses(good string) []bad {
	expand := func(required, limit int64) func(context.Context, csi.ControllerClient) error {
		return func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: good, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}})
			return err
		}
	}
	modify := func(parameters map[string]string) func(context.Context, csi.ControllerClient) error {
		return func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: good, MutableParameters: parameters})
			return err
		}
	}
	list := []bad{
		{"a shrink", codes.OutOfRange, "shrink", expand(0, 32<<20)},
		{"an expansion to a negative size", codes.InvalidArgument, "negative", expand(-1, 0)},
		{"an expansion beyond every volume", codes.OutOfRange, "bytes", expand(1<<62, 0)},
		{"an expansion above its limit", codes.InvalidArgument, "limit", expand(256<<20, 128<<20)},
		{"a change of what cannot change", codes.InvalidArgument, "zfs.compression", modify(map[string]string{"protocol": "iscsi"})},
		{"a change with one bad value", codes.InvalidArgument, "zfs.sync", modify(map[string]string{"zfs.compression": "off", "zfs.sync": "perhaps"})},
		{"a snapshot without a name", codes.InvalidArgument, "name", func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: good})
			return err
		}},
		{"a snapshot with an unknown parameter", codes.InvalidArgument, "parameter", func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: good, Name: "s", Parameters: map[string]string{"recursive": "true"}})
			return err
		}},
		{"a listing from nowhere", codes.Aborted, "start", func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ListSnapshots(ctx, &csi.ListSnapshotsRequest{StartingToken: "../x"})
			return err
		}},
		{"a listing of fewer than none", codes.InvalidArgument, "negative", func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{MaxEntries: -1})
			return err
		}},
	}
	for _, node := range strangeNodes {
		list = append(list, bad{fmt.Sprintf("a publication to %q", node), codes.NotFound, "node", func(ctx context.Context, c csi.ControllerClient) error {
			_, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: good, NodeId: node, VolumeCapability: mountCapability("")})
			return err
		}})
	}
	return list
}

// state is everything of volumes that the storage host has.
func (d *Driver) state(t *testing.T) []string {
	t.Helper()
	list, err := d.below()
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, d.Storage.Exports()...)
	return append(list, d.Storage.ExportFiles()...)
}
