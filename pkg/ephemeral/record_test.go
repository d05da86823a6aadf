package ephemeral

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/file"
)

func newLedger(t *testing.T) ledger {
	t.Helper()
	l := ledger{filepath.Join(t.TempDir(), "ephemeral")}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRecordsAreReadAsTheyAreWritten(t *testing.T) {
	l := newLedger(t)
	if r, err := l.read("csi-1"); r != nil || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	want := &record{
		Handle: "csi-1", VolumeID: "tank/a", TargetPath: "/t", NodeID: "w@192.0.2.1", Pod: "shop/web-0", State: made,
		Attributes: map[string]string{"size": "1Gi"}, Parameters: map[string]string{"pool": "tank"}, Bytes: 1 << 30, LimitBytes: 2 << 30,
	}
	for range 2 {
		if err := l.save(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.read("csi-1")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if err := l.save(&record{Handle: "csi-2", VolumeID: "tank/b"}); err != nil {
		t.Fatal(err)
	}
	ids, known, err := Volumes(l.dir)
	if list := slices.Sorted(maps.Keys(ids)); !known || err != nil || !slices.Equal(list, []string{"tank/a", "tank/b"}) {
		t.Errorf("%q, %v, %v", list, known, err)
	}
	for range 2 {
		if err := l.remove("csi-1"); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := l.read("csi-1"); r != nil || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// Nothing is guessed from a record that is damaged, or not the one that is meant.
func TestDamagedRecordsAreRefused(t *testing.T) {
	for _, content := range []string{"", "{", `{"version":2,"handle":"csi-1"}`, `{"version":1,"handle":"csi-2"}`} {
		l := newLedger(t)
		if err := os.WriteFile(l.name("csi-1"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := l.read("csi-1"); r != nil || err == nil || fault.Kind(err) != nil {
			t.Errorf("%q: %+v, %v", content, r, err)
		}
	}
	l := newLedger(t)
	if err := os.WriteFile(l.name("csi-1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, known, err := Volumes(l.dir); known || err == nil {
		t.Errorf("%v, %v", known, err)
	}
	if _, known, err := Volumes(filepath.Join(l.dir, "nothing")); known || err != nil {
		t.Errorf("%v, %v", known, err)
	}
}

// What a power loss left of a write goes at the next start, and nothing else.
func TestUnfinishedRecordsAreRemoved(t *testing.T) {
	l := newLedger(t)
	if err := l.save(&record{Handle: "csi-1"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file.Unfinished(l.name("csi-2")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.staging("csi-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(l.dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1073741824": 1 << 30, "1Ki": 1 << 10, "512Mi": 512 << 20, "2Gi": 2 << 30, "1Ti": 1 << 40, "1k": 1000, "1G": 1e9, "8191Pi": 8191 << 50,
		"": 0, "0": 0, "Gi": 0, "-1": 0, "+1": 0, "1.5Gi": 0, "1e3": 0, "1 Gi": 0, "1g": 0, "1GiB": 0, "0x10": 0, "8192Pi": 0, "9223372036854775808": 0,
	} {
		if got, ok := parseBytes(text); ok != (want > 0) || got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
}
