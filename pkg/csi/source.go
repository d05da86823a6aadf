package csi

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// contentSource reads what a volume is to be made from, which must be whole.
func contentSource(s *csi.VolumeContentSource) (volume.Source, error) {
	if s == nil {
		return volume.Source{}, nil
	}
	var r volume.Source
	switch t := s.GetType().(type) {
	case *csi.VolumeContentSource_Snapshot:
		r.SnapshotID = t.Snapshot.GetSnapshotId()
	case *csi.VolumeContentSource_Volume:
		r.VolumeID = t.Volume.GetVolumeId()
	}
	if r == (volume.Source{}) {
		return r, fault.New(fault.Invalid, "volume_content_source is empty: name a snapshot or a volume, or leave it out")
	}
	return r, nil
}

func sourceMessage(s volume.Source) *csi.VolumeContentSource {
	switch {
	case s.SnapshotID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.SnapshotID}}}
	case s.VolumeID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.VolumeID}}}
	}
	return nil
}
