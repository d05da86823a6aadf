package access_test

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/access"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func TestModesHaveTheNumbersAndNamesOfBothVersions(t *testing.T) {
	known := 0
	for number, name := range csi.VolumeCapability_AccessMode_Mode_name {
		mode := access.Mode(number)
		if name == "UNKNOWN" {
			if mode.Known() {
				t.Error("UNKNOWN is known")
			}
			continue
		}
		known++
		if !mode.Known() || mode.String() != name {
			t.Errorf("mode %d is %s, known %t, want %s", number, mode, mode.Known(), name)
		}
		if multi := strings.HasPrefix(name, "MULTI_NODE"); mode.MultiNode() != multi {
			t.Errorf("%s: MultiNode is %t", name, mode.MultiNode())
		}
		if reader := strings.HasSuffix(name, "READER_ONLY"); mode.ReaderOnly() != reader {
			t.Errorf("%s: ReaderOnly is %t", name, mode.ReaderOnly())
		}
		if old, ok := csiv0.VolumeCapability_AccessMode_Mode_name[number]; ok && old != name {
			t.Errorf("mode %d is %s in csi.v0 and %s in csi.v1", number, old, name)
		}
	}
	if known != 7 {
		t.Errorf("the specification has %d modes, tested for 7", known)
	}
	for _, m := range []access.Mode{-1, 0, 8, 99} {
		if m.Known() || m.MultiNode() || m.ReaderOnly() {
			t.Errorf("%s counts as a mode", m)
		}
	}
}

func TestCapabilityNeverPrintsMountFlags(t *testing.T) {
	c := access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "ext4", MountFlags: []string{"password=sentinel"}}
	if got, want := c.String(), "mount/SINGLE_NODE_WRITER/ext4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (access.Capability{}).String(), "access type 0/access mode 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
