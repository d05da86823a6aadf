package nfs

import (
	"os"
	"path/filepath"
	"testing"
)

// The table is parsed again whenever another file is there, of the same size too.
func TestTablesAreReadAgain(t *testing.T) {
	var tables tables
	path := filepath.Join(t.TempDir(), "etab")
	if table, err := tables.read(path); err != nil || len(table) > 0 {
		t.Fatalf("no file: %v, %v", table, err)
	}
	info, err := os.Stat("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/a", "/b", "/c"} {
		temp := path + ".tmp"
		if err := os.WriteFile(temp, []byte(name+"\t192.0.2.1(rw)\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		// As if all were written in one tick of the clock.
		if err := os.Chtimes(temp, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if table, err := tables.read(path); err != nil || len(table) != 1 || table[name] == nil {
				t.Errorf("%s: %v, %v", name, table, err)
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if table, err := tables.read(path); err != nil || len(table) > 0 {
		t.Errorf("the file is gone: %v, %v", table, err)
	}
}
