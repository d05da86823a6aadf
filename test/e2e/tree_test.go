//go:build guest

package e2e

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/export/iscsi"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/tree"
)

// Volumes, snapshots, clones and groups agree with a model, whatever is done in
// which order, and so does what is in them.
func TestTree(t *testing.T) {
	tree.Checks(t, 1)
	steps := manySteps
	if testing.Short() {
		steps = fewSteps
	}
	for _, k := range []kind{kinds[0], kinds[3]} {
		t.Run(k.name, func(t *testing.T) {
			w := tree.World{
				Conn: host.Daemon.Conn(), Parameters: k.parameters, Block: k.block, Unit: 16 << 20, Steps: steps, Timeout: rpcTimeout,
				Write: writeVolume, Read: readVolume,
				Left: func() ([]string, error) { return harness.State(host.Pool, host.Daemon.Dir) },
			}
			rapid.Check(t, func(rt *rapid.T) { tree.Check(rt, w) })
		})
	}
}

// Few steps are enough for every change; each is some commands in an emulated
// machine.
const (
	fewSteps  = 60
	manySteps = 500
)

// textBytes is how much of a zvol the tests use.
const textBytes = 4096

// place is where the storage host itself sees a volume's data: a file in the
// mounted dataset, or the zvol.
func place(volumeID string) (path string, device bool, err error) {
	dataset := host.Pool.Parent() + "/" + strings.TrimPrefix(volumeID, "p/")
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", false, err
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); f[0] == dataset && f[2] == "zfs" {
			return filepath.Join(f[1], "data"), false, nil
		}
	}
	path = "/dev/zvol/" + dataset
	deadline := time.Now().Add(30 * time.Second)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		// The link of a zvol that had the name before may still be there.
		d, err := iscsi.HostDevice(path)
		if err == nil {
			return path, true, d.Close()
		}
		if time.Now().After(deadline) {
			return "", false, fmt.Errorf("neither a mount nor a device of %s: %w", dataset, err)
		}
		time.Sleep(pause)
	}
}

func writeVolume(volumeID, text string) error {
	path, device, err := place(volumeID)
	if err != nil {
		return err
	}
	data := []byte(text)
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if device {
		data = append(data, make([]byte, textBytes-len(data))...)
		flags = os.O_WRONLY
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func readVolume(volumeID string) (string, error) {
	path, _, err := place(volumeID)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, textBytes))
	return strings.TrimRight(string(data), "\x00"), err
}
