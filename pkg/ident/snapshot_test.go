package ident

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// foreignSnapshots are snapshot ids that could not be ours.
func foreignSnapshots() []string {
	list := []string{
		"tank/v", "tank/v@", "@s", "tank/@s", "/v@s", "v@s", "tank/v@s@t", "tank/v@@s", "tank/v@.clone.x", "tank/v@-r", "tank/v@_s",
		"tank/v@s/t", "tank/v@../s", "tank/v@s%", "tank/v@%", "tank/v@a,b", "tank/v@s ", "tank/v@s\n", "tank/v@s\x00", "tank/v#s",
		"tank/.tombstones@s", "tank/v/w@s", "tank/group/g@s", "tank/v@" + strings.Repeat("s", MaxComponent+1), strings.Repeat("x", 4096),
	}
	for _, s := range foreign {
		list = append(list, s+"@s", "tank/v@"+s)
	}
	return list
}

func TestForeignSnapshotIDsNameNothing(t *testing.T) {
	if _, err := ParseSnapshotID(""); !errors.Is(err, fault.Invalid) {
		t.Errorf("empty: %v", err)
	}
	for _, s := range foreignSnapshots() {
		if s == "tank/v@tank" {
			continue // "tank" alone is no volume, and a good snapshot's name
		}
		id, err := ParseSnapshotID(s)
		if fault.Kind(err) != fault.NotFound || id != (SnapshotID{}) {
			t.Errorf("%q: %v, %v", s, id, err)
		}
		checkMessage(t, err)
	}
}

func TestForeignGroupIDsNameNothing(t *testing.T) {
	if _, err := ParseGroupID(""); !errors.Is(err, fault.Invalid) {
		t.Errorf("empty: %v", err)
	}
	for _, s := range append(foreignSnapshots(), "tank/group/", "/group/g", "tank/group", "tank/group/g@s", "tank/group/g/h", "tank/groups/g",
		"tank/Group/g", "Tank/group/g", "tank/group/-g", "tank/group/../v", "tank/group/"+strings.Repeat("g", MaxComponent+1)) {
		id, err := ParseGroupID(s)
		if fault.Kind(err) != fault.NotFound || id != (GroupID{}) {
			t.Errorf("%q: %v, %v", s, id, err)
		}
		checkMessage(t, err)
	}
}

// Every name gives ids that parse, are short enough, and name one kind of thing.
func TestSnapshotIDsOfNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		pool := rapid.StringMatching(`[a-z0-9]([a-z0-9_-]{0,28}[a-z0-9])?`).Draw(t, "pool")
		snapshot := SnapshotID{Volume: VolumeID{Pool: pool, Component: Component(name)}, Component: Component(name)}
		if got, err := ParseSnapshotID(snapshot.String()); err != nil || got != snapshot {
			t.Fatalf("%q: %v, %v", snapshot, got, err)
		}
		group := GroupID{Pool: pool, Component: Component(name)}
		if got, err := ParseGroupID(group.String()); err != nil || got != group {
			t.Fatalf("%q: %v, %v", group, got, err)
		}
		if len(snapshot.String()) > 128 || len(group.String()) > 128 {
			t.Fatalf("%q or %q is longer than 128 bytes", snapshot, group)
		}
		if !ValidComponent(group.Member()) || group.Member() == Component(name) {
			t.Fatalf("%q has members called %q", group, group.Member())
		}
		for _, id := range []string{snapshot.String(), group.String()} {
			if _, err := ParseVolumeID(id); err == nil {
				t.Fatalf("%q is a volume's id too", id)
			}
		}
		if _, err := ParseSnapshotID(group.String()); err == nil {
			t.Fatalf("%q is a snapshot's id too", group)
		}
	})
}

func FuzzParseSnapshotID(f *testing.F) {
	for _, s := range foreignSnapshots() {
		f.Add(s)
	}
	f.Add("tank/pvc-1@snapshot-1")
	f.Add("tank/group/group-1")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseSnapshotID(s); err != nil {
			checkMessage(t, err)
		} else if id.String() != s || len(s) > 128 || strings.Count(s, "@") != 1 || strings.ContainsAny(s, "%#, \t\n\x00\"'\\=:") ||
			strings.Contains(s, "@.") || strings.Contains(s, "@-") {
			t.Errorf("%q parses to %q", s, id)
		}
		if id, err := ParseGroupID(s); err != nil {
			checkMessage(t, err)
		} else if id.String() != s || len(s) > 128 || strings.Count(s, "/") != 2 || strings.ContainsAny(s, "@%#, \t\n\x00\"'\\=:") {
			t.Errorf("%q parses to %q", s, id)
		}
	})
}
