package csi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestContentSourcesGoBothWays(t *testing.T) {
	for _, want := range []*csi.VolumeContentSource{
		nil,
		{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "tank/v@s"}}},
		{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "tank/v"}}},
	} {
		s, err := contentSource(want)
		if err != nil {
			t.Errorf("%v: %v", want, err)
		}
		if diff := cmp.Diff(want, sourceMessage(s), protocmp.Transform()); diff != "" {
			t.Errorf("it comes back otherwise (-want +got):\n%s", diff)
		}
	}
}

func TestEmptyContentSourcesAreRefused(t *testing.T) {
	for _, s := range []*csi.VolumeContentSource{
		{},
		{Type: &csi.VolumeContentSource_Snapshot{}},
		{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{}}},
		{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{}}},
	} {
		if _, err := contentSource(s); fault.Kind(err) != fault.Invalid {
			t.Errorf("%v: %v", s, err)
		}
	}
}
