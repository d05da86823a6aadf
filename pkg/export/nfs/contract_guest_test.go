//go:build guest

package nfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/run"
)

// TestMain makes a pool for the tests that mount. Nothing is skipped: what is
// missing in the guest fails them.
func TestMain(m *testing.M) {
	if os.Getenv("TARN_GUEST") != "1" {
		fmt.Fprintln(os.Stderr, "this test binary is for the inside of a guest: hack/vm/run -- ...")
		os.Exit(1)
	}
	os.Exit(withPool(m))
}

const guestPool = "tarn-nfs-test"

// guestDir is where the pool is mounted.
var guestDir string

func withPool(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tarn-nfs-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	guestDir = filepath.Join(dir, "mnt")
	// Of a run that was killed.
	_ = command("umount", "-a", "-l", "-t", "nfs4")
	_ = command("exportfs", "-ua")
	_ = command("zpool", "destroy", "-f", guestPool)
	image := filepath.Join(dir, "disk")
	err = errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20),
		command("zpool", "create", "-f", "-m", guestDir, guestPool, image), command("exportfs", "-r"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = command("zpool", "destroy", "-f", guestPool) }()
	return m.Run()
}

func command(name string, args ...string) error {
	_, err := output(name, args...)
	return err
}

func output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
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
func (guestHost) ByHand(args ...string) error { return command("exportfs", args...) }

func (guestHost) StartServer() error {
	return errors.Join(command("exportfs", "-r"), command("rpc.nfsd", "8"))
}

func (guestHost) StopServer() error {
	return errors.Join(command("rpc.nfsd", "0"), command("exportfs", "-ua"))
}

func (guestHost) StartMountd() error {
	if exec.Command("pgrep", "-x", "rpc.mountd").Run() == nil {
		return nil
	}
	return command("rpc.mountd")
}

func (guestHost) StopMountd() error {
	err := command("pkill", "-x", "rpc.mountd")
	for range 500 {
		if exec.Command("pgrep", "-x", "rpc.mountd").Run() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("rpc.mountd does not end")
}

// guestWorld starts from an empty table.
func guestWorld(t *testing.T) *world {
	w := newWorld(t, newGuestHost(), filepath.Join(t.TempDir(), "a b"))
	clean := func() {
		files, err := filepath.Glob("/etc/exports.d/*.exports")
		w.must(err)
		for _, f := range files {
			w.must(os.Remove(f))
		}
		w.must(command("exportfs", "-r"))
	}
	w.must(os.MkdirAll("/etc/exports.d", 0o755))
	clean()
	t.Cleanup(clean)
	return w
}

func TestContractGuest(t *testing.T) { runRules(t, guestWorld) }
