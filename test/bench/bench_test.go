//go:build guest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Every cell is measured and written, on a small scale.
func TestBench(t *testing.T) {
	out := filepath.Join(t.TempDir(), "bench.json")
	if err := run(t.Context(), config{volumes: []int{50}, callers: []int{2}, protocols: []string{"nfs", "iscsi"}, calls: 2, restore: 4, out: out}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	if want := 6*2 + 1; len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	for i, r := range rows {
		volumes := 50
		if i == 0 { // restored
			volumes = 4
		}
		if r.P50 <= 0 || r.P99 < r.P50 || r.BareP50 <= 0 || r.Ratio <= 0 || r.Volumes != volumes {
			t.Errorf("%+v", r)
		}
	}
}
