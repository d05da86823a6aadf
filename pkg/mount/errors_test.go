package mount

import (
	"errors"
	"os"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestErrorCount(t *testing.T) {
	w := newWorld(t)
	f := w.filesystems()
	f.sys = w.path("sys")
	if n, err := f.ErrorCount(8, 16); n != 0 || err != nil {
		t.Errorf("a disk that is gone: %d, %v", n, err)
	}
	for _, dir := range []string{"sys/devices/sdb", "sys/dev/block", "sys/fs/ext4/sdb"} {
		if err := os.MkdirAll(w.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../devices/sdb", w.path("sys/dev/block/8:16")); err != nil {
		t.Fatal(err)
	}
	if n, err := f.ErrorCount(8, 16); n != 0 || err != nil {
		t.Errorf("a filesystem that counts none: %d, %v", n, err)
	}
	w.set("sys/fs/ext4/sdb/errors_count", "7\n")
	if n, err := f.ErrorCount(8, 16); n != 7 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	w.set("sys/fs/ext4/sdb/errors_count", "many\n")
	if _, err := f.ErrorCount(8, 16); !errors.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}
