package faults

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const mib = 1 << 20

func writer(c *csi.VolumeCapability) *csi.VolumeCapability {
	c.AccessMode = &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	return c
}

// asFilesystem and asBlock are how a volume is used; "" leaves the filesystem to
// the driver.
func asFilesystem(fsType string) *csi.VolumeCapability {
	return writer(&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}})
}

func asBlock() *csi.VolumeCapability {
	return writer(&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}})
}

func creation(name, protocol string, bytes int64, c *csi.VolumeCapability) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{c}, Parameters: map[string]string{"protocol": protocol}}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

// must returns the answer of a call that cannot fail here.
func must[T any](t testing.TB, what string) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// wantCode fails the test unless a call ended with one of the codes, and says
// the words.
func wantCode(t testing.TB, what string, err error, words string, want ...codes.Code) {
	t.Helper()
	if !slices.Contains(want, status.Code(err)) {
		t.Errorf("%s: %v, want %v", what, err, want)
	} else if err != nil && !strings.Contains(status.Convert(err).Message(), words) {
		t.Errorf("%s: the message does not say %q: %v", what, words, err)
	}
}

// eventually polls until ok, and fails at the limit.
func eventually(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for pause := 10 * time.Millisecond; !ok(); pause = min(2*pause, 500*time.Millisecond) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			t.Fatalf("not in time: %s", what)
		}
	}
}
