package configfs_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/export/configfs/fake"
)

func TestFakeFollowsTheRules(t *testing.T) {
	testRules(t, func(*testing.T) *rig {
		f := fake.New()
		r := &rig{fs: f, devices: [2]string{"/dev/one", "/dev/two"}}
		for i, path := range r.devices {
			f.AddDevice(fake.Device{Path: path, Major: 230, Minor: uint32(16 * i), SizeBytes: 1 << 20})
		}
		r.listen = f.Listen
		return r
	})
}

func TestBareFakeIsAHostWithoutModules(t *testing.T) {
	f := fake.Bare()
	if err := f.Mkdir("target/iscsi"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("mkdir of target/iscsi without modules: %v", err)
	}
	f.LoadModules()
	if _, err := f.List("target/iscsi"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("target/iscsi is there before it was made: %v", err)
	}
	if err := f.Mkdir("target/iscsi"); err != nil {
		t.Fatal(err)
	}
}

func TestInjectorFailsWithoutEffect(t *testing.T) {
	i := fake.Inject(fake.New())
	i.FailNth(2, syscall.ENOSPC)
	if err := i.Mkdir(iqn); err != nil {
		t.Fatal(err)
	}
	if err := i.Mkdir(tpg); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("second operation: %v", err)
	}
	if _, err := i.List(tpg); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the failed mkdir had an effect: %v", err)
	}
	if err := i.Mkdir(tpg); err != nil {
		t.Fatalf("it failed more than once: %v", err)
	}
	i.CutAfter(1)
	if err := i.Rmdir(tpg); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := i.Rmdir(iqn); !errors.Is(err, syscall.EIO) {
			t.Fatalf("after the cut: %v", err)
		}
	}
	i.Heal()
	if err := i.Rmdir(iqn); err != nil {
		t.Fatal(err)
	}
}
