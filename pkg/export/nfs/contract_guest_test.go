//go:build guest

package nfs_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

var pool = machine.Pool{Name: "tarn-nfs-test", Bytes: 256 << 20, Mountpoint: "mnt"}

func TestMain(m *testing.M) { os.Exit(pool.Run(m, clean, machine.Nothing)) }

// clean takes away what a run that was killed has left.
func clean() error {
	_ = machine.Run("umount", "-a", "-l", "-t", "nfs4")
	return errors.Join(machine.Run("exportfs", "-ua"), machine.Run("exportfs", "-r"))
}

// guestHost is the guest's NFS server.
type guestHost struct{ *run.Runner }

func newGuestHost() guestHost {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return guestHost{run.New(log)}
}

func (guestHost) Paths() nfs.Paths            { return nfs.HostPaths }
func (guestHost) Exports() string             { return "/etc/exports" }
func (guestHost) ByHand(args ...string) error { return machine.Run("exportfs", args...) }

func (guestHost) StartServer() error {
	return errors.Join(machine.Run("exportfs", "-r"), machine.Run("rpc.nfsd", "8"))
}

func (guestHost) StopServer() error {
	return errors.Join(machine.Run("rpc.nfsd", "0"), machine.Run("exportfs", "-ua"))
}

func (guestHost) StartMountd() error {
	if exec.Command("pgrep", "-x", "rpc.mountd").Run() == nil {
		return nil
	}
	return machine.Run("rpc.mountd")
}

func (guestHost) StopMountd() error {
	err := machine.Run("pkill", "-x", "rpc.mountd")
	for range 500 {
		if exec.Command("pgrep", "-x", "rpc.mountd").Run() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("rpc.mountd does not end")
}

// guestWorld starts from an empty table, and leaves one.
func guestWorld(t *testing.T) *world {
	w := newWorld(t, newGuestHost(), filepath.Join(t.TempDir(), "a b"))
	w.must(os.MkdirAll("/etc/exports.d", 0o755))
	t.Cleanup(func() {
		files, err := filepath.Glob("/etc/exports.d/*.exports")
		w.must(err)
		for _, f := range files {
			w.must(os.Remove(f))
		}
		if table, err := os.ReadFile(w.host.Paths().Etab); err != nil || len(table) > 0 {
			w.must(machine.Run("exportfs", "-r"))
		}
	})
	return w
}
