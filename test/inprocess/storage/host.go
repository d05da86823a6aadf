// Package storage is a storage host in memory, without root: pkg/zfs/fake, the
// strict fake of configfs and a fake exportfs, joined as a real host joins
// them. Zvols have devices that a backstore claims, and what is exported is
// busy. The exporters on it are the real ones.
package storage

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	configfsfake "github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/export/iscsi"
	"github.com/tarn-csi/tarn/pkg/export/nfs"
	nfsfake "github.com/tarn-csi/tarn/pkg/export/nfs/fake"
	"github.com/tarn-csi/tarn/pkg/ident"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
)

// PoolBytes is the size of the pool.
const PoolBytes = 64 << 30

// Parent is the dataset below which volumes are made; it exists.
const Parent = "tank/csi"

// Host is the storage host.
type Host struct {
	dir  string
	Pool *zfsfake.ZFS
	// Configfs is the kernel's; Writes is the same seen by the exporter, with
	// faults.
	Configfs *configfsfake.FS
	Writes   *configfsfake.Injector
	Naming   ident.Naming

	nfs *nfsfake.Host

	mu    sync.Mutex
	disks map[string]*Disk // by zvol
	// images are what is on the snapshots of zvols, by full name.
	images map[string]image
	minor  uint32
}

// New returns a host with the pool tank and the parent dataset tank/csi. It
// ends with the test.
func New(t testing.TB) *Host {
	t.Helper()
	// Paths travel in fields of at most 128 bytes, so t.TempDir is too long.
	dir, err := os.MkdirTemp("", "tarn-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	h := &Host{dir: dir, Configfs: configfsfake.New(), disks: map[string]*Disk{}, images: map[string]image{}}
	h.Writes = configfsfake.Inject(h.Configfs)
	h.Pool = zfsfake.New("tank", PoolBytes, dir)
	if h.Naming, err = ident.NewNaming("iqn.2026-01.io.github.tarn-csi", "main"); err != nil {
		t.Fatal(err)
	}
	if err := h.Pool.Make(Parent); err != nil {
		t.Fatal(err)
	}
	if h.nfs, err = nfsfake.New(filepath.Join(dir, "nfs")); err != nil {
		t.Fatal(err)
	}
	return h
}

// Dir is a directory of the host's, for the state of daemons.
func (h *Host) Dir(name string) string { return filepath.Join(h.dir, name) }

// ZFS is the pool as a driver sees it.
func (h *Host) ZFS() ZFS { return ZFS{ZFS: h.Pool, host: h} }

// Exporters returns new exporters, as a new daemon has them.
func (h *Host) Exporters(log logrus.FieldLogger) map[string]export.Exporter {
	return map[string]export.Exporter{
		"nfs": forgetful{h, log},
		"iscsi": iscsi.New(iscsi.Config{
			FS: h.Writes, Naming: h.Naming, LockPath: h.Dir("configfs.lock"), Log: log, Device: h.device,
			DeviceWait: 2 * time.Second,
		}),
	}
}

// forgetful is the real NFS exporter, made anew for each call. An exporter
// waits for the next second of the clock before it changes a path twice, for
// the sake of a cache in the kernel that is not here.
type forgetful struct {
	host *Host
	log  logrus.FieldLogger
}

func (f forgetful) real() *nfs.Exporter {
	return nfs.New(f.host.nfs, f.host.nfs.Paths(), f.host.Naming.Instance(), f.log)
}

func (f forgetful) Ensure(ctx context.Context, v export.Volume) error {
	return f.real().Ensure(ctx, v)
}

func (f forgetful) Remove(ctx context.Context, uuid string) error { return f.real().Remove(ctx, uuid) }

func (f forgetful) List(ctx context.Context) ([]export.Status, error) { return f.real().List(ctx) }

func (f forgetful) Look(ctx context.Context, uuid string) (export.Status, bool, error) {
	return f.real().Look(ctx, uuid)
}

func (f forgetful) Ready(ctx context.Context) error { return f.real().Ready(ctx) }

func (f forgetful) Others(ctx context.Context) ([]export.Other, error) { return f.real().Others(ctx) }

// LoseConfigfs is a reboot for LIO: no target is left, and the pool stays.
func (h *Host) LoseConfigfs(ctx context.Context) error {
	e := iscsi.New(iscsi.Config{FS: h.Configfs, Naming: h.Naming, LockPath: h.Dir("configfs.lock"), Log: Quiet(), Device: h.device})
	list, err := e.List(ctx)
	if err != nil {
		return err
	}
	for _, st := range list {
		if err := e.Remove(ctx, st.UUID); err != nil {
			return err
		}
	}
	return nil
}

// Targets returns what configfs holds of targets and backstores: one line a
// directory, link or readable attribute, in order.
func (h *Host) Targets() []string {
	return append(h.tree("target/iscsi"), h.tree("target/core")...)
}

func (h *Host) tree(dir string) []string {
	entries, err := h.Configfs.List(dir)
	if err != nil {
		return nil
	}
	var lines []string
	for _, e := range entries {
		p := path.Join(dir, e.Name)
		switch e.Kind {
		case configfs.Directory:
			lines = append(append(lines, p+"/"), h.tree(p)...)
		case configfs.Link:
			lines = append(lines, p+" -> "+e.Target)
		default:
			if v, err := h.Configfs.Read(p); err == nil {
				lines = append(lines, p+" = "+v)
			}
		}
	}
	return lines
}

// Quiet is a logger that nobody hears.
func Quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}
