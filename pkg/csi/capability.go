package csi

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// maxMountFlags is the specification's limit for all mount flags of a
// capability together.
const maxMountFlags = 4 << 10

// capability reads one capability, which must be whole.
func capability(c *csi.VolumeCapability) (access.Capability, error) {
	if c == nil {
		return access.Capability{}, fault.New(fault.Invalid, "the volume capability is missing")
	}
	r := access.Capability{Mode: access.Mode(c.GetAccessMode().GetMode())}
	switch t := c.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		r.Type = access.Block
	case *csi.VolumeCapability_Mount:
		r.Type = access.Mount
		r.FSType = t.Mount.GetFsType()
		r.MountFlags = t.Mount.GetMountFlags()
		// Not advertised: no filesystem here has a mount option for a group.
		if t.Mount.GetVolumeMountGroup() != "" {
			return r, fault.New(fault.Invalid, "volume_mount_group is not served: leave it out, and let the orchestrator set the group of the files")
		}
	default:
		return r, fault.New(fault.Invalid, "the capability has neither access type: set block or mount")
	}
	if !r.Mode.Known() {
		return r, fault.New(fault.Invalid, "the capability's access mode is unset or unknown (%d)", int(r.Mode))
	}
	n := 0
	for _, f := range r.MountFlags {
		n += len(f)
	}
	if n > maxMountFlags {
		return r, fault.New(fault.Invalid, "the mount flags have %d bytes together, of at most %d", n, maxMountFlags)
	}
	return r, nil
}

func capabilities(list []*csi.VolumeCapability) ([]access.Capability, error) {
	if len(list) == 0 {
		return nil, fault.New(fault.Invalid, "no volume capability is given")
	}
	r := make([]access.Capability, len(list))
	for i, c := range list {
		var err error
		if r[i], err = capability(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// required refuses a request whose REQUIRED text field is empty, before
// anything is looked up.
func required(fields ...string) error {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			return fault.New(fault.Invalid, "%s is missing", fields[i])
		}
	}
	return nil
}
