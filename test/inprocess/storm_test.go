package inprocess

import (
	"context"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tarn-csi/tarn/test/faults/storm"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// Many callers and many volumes at once, with the race detector: no two volumes
// for one name, and configfs, mountd's table and the pool as the model has them.
// With TARN_LONG set there are 64 callers and 500 volumes.
func TestStorm(t *testing.T) {
	d := Start(t)
	conn, err := grpc.NewClient(d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	seed, err := storm.Seed()
	if err != nil {
		t.Fatal(err)
	}
	w := storm.World{
		Conn: conn, NodeID: NodeName + "@" + NodeAddress, SizeBytes: 16 << 20,
		Parameters: []map[string]string{overNFS.parameters, asExt4.parameters},
		Volumes:    48, Callers: 16, Calls: 160, Patience: time.Minute, Seed: seed,
	}
	if os.Getenv("TARN_LONG") != "" {
		w.Volumes, w.Callers, w.Calls, w.Patience = 500, 64, 4000, 5*time.Minute
	}
	t.Logf("repeat with TARN_SEED=%d", w.Seed)
	s := storm.New(w)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Listed(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.shows(t.Context(), s.Volumes()); err != nil {
		t.Error(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.wantClean(t)
}

// shows compares the storage host's tables with the model.
func (d *Driver) shows(ctx context.Context, volumes []*storm.Volume) error {
	var want, have []string
	for _, v := range volumes {
		if !v.Published {
			continue
		}
		dataset := storage.Parent + "/" + v.Name
		if v.Parameters["protocol"] == "nfs" {
			want = append(want, d.Storage.Dir(dataset))
			continue
		}
		ds, err := d.Storage.Pool.Get(ctx, dataset)
		if err != nil {
			return err
		}
		uuid, _ := ds.Own("tarn:uuid")
		want = append(want, d.Storage.Naming.Target(uuid))
	}
	for _, line := range d.Storage.Exports() {
		exported, _, _ := strings.Cut(line, "\t")
		have = append(have, exported)
	}
	for _, line := range d.Storage.Targets() {
		if dir, ok := strings.CutSuffix(line, "/"); ok && path.Dir(dir) == "target/iscsi" && strings.HasPrefix(path.Base(dir), "iqn.") {
			have = append(have, path.Base(dir))
		}
	}
	return storm.Same("the exports", want, have)
}
