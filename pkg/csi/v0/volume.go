package v0

import (
	csi "github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// volume drops the content source and the topology; nil stays nil.
func volume(v *csi.Volume) *csiv0.Volume {
	if v == nil {
		return nil
	}
	return &csiv0.Volume{
		CapacityBytes: v.GetCapacityBytes(),
		Id:            v.GetVolumeId(),
		Attributes:    v.GetVolumeContext(),
	}
}

// capacityRange keeps an unset range unset.
func capacityRange(r *csiv0.CapacityRange) *csi.CapacityRange {
	if r == nil {
		return nil
	}
	return &csi.CapacityRange{
		RequiredBytes: r.GetRequiredBytes(),
		LimitBytes:    r.GetLimitBytes(),
	}
}
