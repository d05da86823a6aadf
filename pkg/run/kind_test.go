package run

import "testing"

func TestKindsAreThoseOfTheTable(t *testing.T) {
	for c, want := range map[Child][2]string{
		{Tool: "zfs", Verb: "create"}:        {"zfs", "create"},
		{Tool: "zfs", Verb: "tank"}:          {"zfs", Other},
		{Tool: "mount", Verb: "nfs"}:         {"mount", ""},
		{Tool: "mkfs.ext4", Verb: "/dev/sd"}: {"mkfs.ext4", ""},
		{Tool: "sh", Verb: "x"}:              {Other, Other},
	} {
		if tool, verb := c.Kind(); tool != want[0] || verb != want[1] {
			t.Errorf("%+v is %s %s", c, tool, verb)
		}
	}
}
