package csi

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func mode(m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability_AccessMode {
	return &csi.VolumeCapability_AccessMode{Mode: m}
}

func mounted(fsType string, flags ...string) *csi.VolumeCapability_Mount {
	return &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}}
}

var (
	asBlock = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	writer  = mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
)

func TestCapability(t *testing.T) {
	full := strings.Repeat("f", 2048)
	for name, c := range map[string]struct {
		in   *csi.VolumeCapability
		want access.Capability // zero: refused
		part string
	}{
		"block": {&csi.VolumeCapability{AccessType: asBlock, AccessMode: writer}, access.Capability{Type: access.Block, Mode: access.SingleNodeWriter}, ""},
		"mount": {&csi.VolumeCapability{AccessType: mounted("xfs", "noatime", "ro"), AccessMode: writer},
			access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "xfs", MountFlags: []string{"noatime", "ro"}}, ""},
		"mount without more": {&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{}, AccessMode: writer}, access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter}, ""},
		"block without more": {&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{}, AccessMode: writer}, access.Capability{Type: access.Block, Mode: access.SingleNodeWriter}, ""},
		"a full list of flags": {&csi.VolumeCapability{AccessType: mounted("", full, full), AccessMode: writer},
			access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter, MountFlags: []string{full, full}}, ""},
		"nil":           {nil, access.Capability{}, "missing"},
		"empty":         {&csi.VolumeCapability{}, access.Capability{}, "access type"},
		"no type":       {&csi.VolumeCapability{AccessMode: writer}, access.Capability{}, "access type"},
		"no mode":       {&csi.VolumeCapability{AccessType: asBlock}, access.Capability{}, "access mode"},
		"unknown mode":  {&csi.VolumeCapability{AccessType: asBlock, AccessMode: mode(0)}, access.Capability{}, "access mode"},
		"mode of later": {&csi.VolumeCapability{AccessType: asBlock, AccessMode: mode(8)}, access.Capability{}, "(8)"},
		"negative mode": {&csi.VolumeCapability{AccessType: asBlock, AccessMode: mode(-1)}, access.Capability{}, "(-1)"},
		"a mount group": {&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{
			Mount: &csi.VolumeCapability_MountVolume{VolumeMountGroup: "1000"}}, AccessMode: writer}, access.Capability{}, "volume_mount_group"},
		"too many flags": {&csi.VolumeCapability{AccessType: mounted("", full, full, "f"), AccessMode: writer}, access.Capability{}, "4097 bytes"},
	} {
		got, err := capability(c.in)
		if c.part == "" {
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%s: %v %s", name, err, diff)
			}
		} else if fault.Kind(err) != fault.Invalid || !strings.Contains(err.Error(), c.part) || strings.Contains(err.Error(), "fff") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, listErr := capabilities([]*csi.VolumeCapability{{AccessType: asBlock, AccessMode: writer}, c.in}); (listErr == nil) != (err == nil) {
			t.Errorf("%s, second in a list: %v", name, listErr)
		}
	}
	if _, err := capabilities(nil); fault.Kind(err) != fault.Invalid {
		t.Errorf("no capability: %v", err)
	}
}

func TestEveryModeOfTheSpecificationIsRead(t *testing.T) {
	for number, name := range csi.VolumeCapability_AccessMode_Mode_name {
		if number == 0 {
			continue
		}
		got, err := capability(&csi.VolumeCapability{AccessType: asBlock, AccessMode: mode(csi.VolumeCapability_AccessMode_Mode(number))})
		if err != nil || got.Mode.String() != name {
			t.Errorf("%s becomes %s, %v", name, got.Mode, err)
		}
	}
}
