package configfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// A plain directory shows what the system calls are; what the kernel makes of
// them is in the rules.
func TestHostOnAPlainDirectory(t *testing.T) {
	root := t.TempDir()
	h := configfs.NewHost(root)
	if err := h.Write("missing", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("write of a missing attribute: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the write made a file: %v", err)
	}

	attribute := filepath.Join(root, "attribute")
	if err := os.WriteFile(attribute, []byte("longer than that\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Write("attribute", "short"); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(attribute); string(b) != "shortr than that\n" {
		t.Fatalf("one write without O_TRUNC leaves the rest, got %q", b)
	}
	if v, err := h.Read("attribute"); err != nil || v != "shortr than that" {
		t.Fatalf("read: %q, %v", v, err)
	}

	if err := errors.Join(h.Mkdir("a"), h.Mkdir("a/b"), h.Symlink("a/b", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../attribute", filepath.Join(root, "a/relative")); err != nil {
		t.Fatal(err)
	}
	list, err := h.List(".")
	want := []configfs.Entry{
		{Name: "a", Kind: configfs.Directory},
		{Name: "attribute", Kind: configfs.Attribute},
		{Name: "link", Kind: configfs.Link, Target: "a/b"},
	}
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	if list, err = h.List("a"); err != nil || !has(list, configfs.Entry{Name: "relative", Kind: configfs.Link, Target: "attribute"}) {
		t.Fatalf("%v %v", list, err)
	}
	if err := errors.Join(h.Unlink("link"), h.Rmdir("a/b")); err != nil {
		t.Fatal(err)
	}
}

func TestHostErrorsCarryPathAndErrnoAndNoValue(t *testing.T) {
	const sentinel = "s3ntinel-Passw0rd"
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := configfs.NewHost(root)
	for name, err := range map[string]error{
		"missing":   h.Write("missing", sentinel),
		"directory": h.Write("dir", sentinel),
		"newline":   h.Write("dir", sentinel+"\n"),
		"long":      h.Write("dir", strings.Repeat(sentinel, 1000)),
		"outside":   h.Write("../x", sentinel),
	} {
		var pathErr *fs.PathError
		var errno syscall.Errno
		if !errors.As(err, &pathErr) || !errors.As(err, &errno) || pathErr.Op != "write" || pathErr.Path == "" {
			t.Errorf("%s: %#v has no path, operation or errno", name, err)
		}
		if strings.Contains(err.Error(), sentinel) {
			t.Errorf("%s: the value is in the error: %v", name, err)
		}
	}
}

func TestHostStaysInItsTree(t *testing.T) {
	root := t.TempDir()
	h := configfs.NewHost(filepath.Join(root, "config"))
	if err := os.Mkdir(filepath.Join(root, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"../x", "/x", "a/../../x", "", "x/", "./x"} {
		if err := h.Mkdir(p); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("mkdir %q: %v", p, err)
		}
		if err := h.Symlink(p, "link"); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("symlink to %q: %v", p, err)
		}
	}
	if entries, _ := os.ReadDir(root); len(entries) != 1 {
		t.Errorf("made outside: %v", entries)
	}
}
