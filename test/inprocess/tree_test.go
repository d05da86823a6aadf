package inprocess

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
	"github.com/tarn-csi/tarn/test/tree"
)

// Volumes, snapshots, clones and groups agree with the model whatever is done in
// which order. The fake's zvols hold no data, so there only the listings do.
func TestTree(t *testing.T) {
	tree.Checks(t, 25)
	for _, u := range []use{overNFS, asBlock} {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			d := Start(t)
			conn, err := grpc.NewClient(d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			w := tree.World{
				Conn: conn, Parameters: u.parameters, Block: u.block, Unit: 16 << 20, Steps: 40, Timeout: 10 * time.Second,
				Write: d.writeFile, Read: d.readFile, Left: d.below,
			}
			if u.block {
				w.Write, w.Read = nil, nil
			}
			rapid.Check(t, func(rt *rapid.T) { tree.Check(rt, w) })
		})
	}
}

// fileOf is the one file of an NFS volume, on the storage host.
func (d *Driver) fileOf(volumeID string) (string, error) {
	dataset := storage.Parent + "/" + strings.TrimPrefix(volumeID, "tank/")
	dir, mounted, err := d.Storage.ZFS().MountedAt(context.Background(), dataset)
	if err == nil && !mounted {
		err = errors.New(dataset + " is not mounted")
	}
	return filepath.Join(dir, "data"), err
}

func (d *Driver) writeFile(volumeID, text string) error {
	file, err := d.fileOf(volumeID)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

func (d *Driver) readFile(volumeID string) (string, error) {
	file, err := d.fileOf(volumeID)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// below are the datasets and snapshots of volumes below the parent.
func (d *Driver) below() ([]string, error) {
	var list []string
	for _, name := range d.Storage.Pool.Names() {
		if below, ok := strings.CutPrefix(name, storage.Parent+"/"); ok && !harness.Container(below) {
			list = append(list, name)
		}
	}
	return list, nil
}
