package access_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
)

func TestParseCapabilityReadsWhatIsWritten(t *testing.T) {
	for mode := access.SingleNodeWriter; mode.Known(); mode++ {
		for _, c := range []access.Capability{{Type: access.Mount, Mode: mode}, {Type: access.Mount, Mode: mode, FSType: "xfs"}, {Type: access.Block, Mode: mode}} {
			if got, ok := access.ParseCapability(c.String()); !ok || !cmp.Equal(got, c) {
				t.Errorf("%s: %+v, %t", c, got, ok)
			}
		}
	}
	for _, s := range []string{"", "mount", "mount/", "mount/UNKNOWN", "file/SINGLE_NODE_WRITER", "access type 0/SINGLE_NODE_WRITER", "mount/access mode 0", "mount/SINGLE_NODE_WRITER/"} {
		if c, ok := access.ParseCapability(s); ok {
			t.Errorf("%q is taken for %+v", s, c)
		}
	}
}
