package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReplaceLeavesOneFileOfThatContentAndMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	// What was cut off before, longer than what is written now.
	if err := os.WriteFile(Unfinished(path), []byte("what a killed process has left"), 0o666); err != nil {
		t.Fatal(err)
	}
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, content := range []string{"first", "2nd"} {
		if err := Replace(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("%q, %v", got, err)
		}
		wantNames(t, dir, "record")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAReplaceThatFailsKeepsWhatWasAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	if err := os.Mkdir(path, 0o755); err != nil { // a file is not renamed over it
		t.Fatal(err)
	}
	if err := Replace(path, []byte("x"), 0o600); !errors.Is(err, syscall.EEXIST) && !errors.Is(err, syscall.EISDIR) {
		t.Errorf("got %v", err)
	}
	wantNames(t, dir, "record")
	if err := Replace(filepath.Join(dir, "none", "record"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRemoveTakesWhatWasCutOffToo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	for _, name := range []string{path, Unfinished(path)} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
		wantNames(t, dir)
	}
	if err := Remove(filepath.Join(dir, "none", "record")); err != nil {
		t.Error(err)
	}
}

func TestWhatWasCutOffIsRemovedByItsPrefix(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".stage-1.new", ".stage-1", "stage-1.new", ".other.new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveUnfinished(dir, "stage-"); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, ".other.new", ".stage-1", "stage-1.new")
	if err := RemoveUnfinished(dir, ""); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, ".stage-1", "stage-1.new")
	if err := RemoveUnfinished(filepath.Join(dir, "none"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(want) {
		t.Fatalf("the folder holds %v, want %q", entries, want)
	}
	for k, e := range entries {
		if e.Name() != want[k] {
			t.Errorf("the folder holds %s, want %s", e.Name(), want[k])
		}
	}
}
