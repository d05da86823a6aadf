package v0

import (
	csi "github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func volumeCapabilities(list []*csiv0.VolumeCapability) []*csi.VolumeCapability {
	var out []*csi.VolumeCapability
	for _, c := range list {
		out = append(out, volumeCapability(c))
	}
	return out
}

// volumeCapability keeps what is unset unset (the capability, its access type,
// its access mode), so that the core refuses it as missing.
func volumeCapability(c *csiv0.VolumeCapability) *csi.VolumeCapability {
	if c == nil {
		return nil
	}
	out := &csi.VolumeCapability{}
	switch access := c.GetAccessType().(type) {
	case *csiv0.VolumeCapability_Block:
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	case *csiv0.VolumeCapability_Mount:
		out.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
			FsType:     access.Mount.GetFsType(),
			MountFlags: access.Mount.GetMountFlags(),
		}}
	}
	if mode := c.GetAccessMode(); mode != nil {
		out.AccessMode = &csi.VolumeCapability_AccessMode{Mode: accessMode(mode.GetMode())}
	}
	return out
}

// accessMode keeps the number. A number that v1 has and v0 has not means
// nothing in v0: it becomes UNKNOWN, so that the core refuses it as it refuses
// every number that neither version has.
func accessMode(mode csiv0.VolumeCapability_AccessMode_Mode) csi.VolumeCapability_AccessMode_Mode {
	_, inV0 := csiv0.VolumeCapability_AccessMode_Mode_name[int32(mode)]
	_, inV1 := csi.VolumeCapability_AccessMode_Mode_name[int32(mode)]
	if inV1 && !inV0 {
		return csi.VolumeCapability_AccessMode_UNKNOWN
	}
	return csi.VolumeCapability_AccessMode_Mode(mode)
}
