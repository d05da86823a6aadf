package volume

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// A group that is too large for one property says how to go on.
func TestGroupsAreBounded(t *testing.T) {
	for _, c := range []struct {
		volumes int
		fits    bool
	}{{1, true}, {60, true}, {100, false}} {
		g := &group{id: ident.GroupID{Pool: "tank", Component: "g"}, created: time.Now(), record: groupRecord{Name: "g", Members: map[string]groupMember{}}}
		for i := range c.volumes {
			g.record.Members[fmt.Sprintf("pvc-00000000-0000-0000-0000-%012d", i)] = groupMember{UUID: strings.Repeat("0", 32), Bytes: MaxBytes}
		}
		marks, err := g.marks()
		if c.fits {
			if err != nil {
				t.Errorf("%d volumes: %v", c.volumes, err)
			}
			for _, m := range marks {
				if len(m.Value) > maxProperty {
					t.Errorf("%d volumes: %s has %d bytes", c.volumes, m.Name, len(m.Value))
				}
			}
			continue
		}
		if fault.Kind(err) != fault.Invalid || !strings.Contains(err.Error(), "several groups") {
			t.Errorf("%d volumes: %v", c.volumes, err)
		}
	}
}
