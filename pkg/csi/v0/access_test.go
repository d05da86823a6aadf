package v0

import (
	"math"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func TestAccessMode(t *testing.T) {
	for _, test := range []struct {
		v0   int32
		want csi.VolumeCapability_AccessMode_Mode
	}{
		{0, csi.VolumeCapability_AccessMode_UNKNOWN},
		{1, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{2, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY},
		{3, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{4, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER},
		{5, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		{6, csi.VolumeCapability_AccessMode_UNKNOWN},
		{7, csi.VolumeCapability_AccessMode_UNKNOWN},
		{99, 99},
		{-1, -1},
		{math.MaxInt32, math.MaxInt32},
	} {
		if got := accessMode(csiv0.VolumeCapability_AccessMode_Mode(test.v0)); got != test.want {
			t.Errorf("mode %d became %d, want %d", test.v0, got, test.want)
		}
	}
}

// The message has the same numbers in both versions, so the bytes of the
// translation must read as the original again.
func TestCapabilityRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		original := drawCapability(t, rapid.Int32Range(0, 5))
		wire, err := proto.Marshal(volumeCapability(original))
		if err != nil {
			t.Fatal(err)
		}
		back := &csiv0.VolumeCapability{}
		if err := proto.Unmarshal(wire, back); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(original, back) {
			t.Fatalf("%v came back as %v", original, back)
		}
	})
}

// Whatever number comes, only the five modes of v0 reach the core as a mode
// that v1 has.
func TestOnlyModesOfV0Arrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.OneOf(rapid.Int32Range(-3, 20), rapid.Int32()).Draw(t, "mode")
		got := accessMode(csiv0.VolumeCapability_AccessMode_Mode(mode))
		_, isMode := csi.VolumeCapability_AccessMode_Mode_name[int32(got)]
		switch {
		case mode >= 1 && mode <= 5:
			if int32(got) != mode {
				t.Fatalf("mode %d became %d", mode, got)
			}
		case isMode && got != csi.VolumeCapability_AccessMode_UNKNOWN:
			t.Fatalf("mode %d became %s", mode, got)
		}
	})
}

func drawCapability(t *rapid.T, modes *rapid.Generator[int32]) *csiv0.VolumeCapability {
	c := &csiv0.VolumeCapability{}
	switch rapid.SampledFrom([]string{"none", "block", "mount"}).Draw(t, "access type") {
	case "block":
		c.AccessType = &csiv0.VolumeCapability_Block{Block: &csiv0.VolumeCapability_BlockVolume{}}
	case "mount":
		c.AccessType = &csiv0.VolumeCapability_Mount{Mount: &csiv0.VolumeCapability_MountVolume{
			FsType:     rapid.String().Draw(t, "fs type"),
			MountFlags: rapid.SliceOf(rapid.String()).Draw(t, "mount flags"),
		}}
	}
	if rapid.Bool().Draw(t, "has access mode") {
		c.AccessMode = &csiv0.VolumeCapability_AccessMode{
			Mode: csiv0.VolumeCapability_AccessMode_Mode(modes.Draw(t, "mode")),
		}
	}
	return c
}
