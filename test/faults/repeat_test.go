//go:build !guest && !faults

package faults

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/test/inprocess"
)

// A repeated CreateVolume answers with the content source, also after a restart.
func TestC07TheSourceIsInEveryReply(t *testing.T) {
	for _, protocol := range []string{"nfs", "iscsi"} {
		t.Run(protocol, func(t *testing.T) {
			w, ctx := start(t), t.Context()
			must[*csi.CreateVolumeResponse](t, "source")(w.v1.CreateVolume(ctx, creation("pvc-src", protocol, 1<<30, asFilesystem(""))))
			snapshot := func(name string) string {
				return must[*csi.CreateSnapshotResponse](t, name)(w.v1.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
					Name: name, SourceVolumeId: "tank/pvc-src"})).GetSnapshot().GetSnapshotId()
			}
			s1, s2 := snapshot("s1"), snapshot("s2")
			r := creation("pvc-r", protocol, 1<<30, asFilesystem(""))
			r.VolumeContentSource = fromSnapshot(s1)
			first := must[*csi.CreateVolumeResponse](t, "first")(w.v1.CreateVolume(ctx, r))
			if got := first.GetVolume().GetContentSource().GetSnapshot().GetSnapshotId(); got != s1 {
				t.Fatalf("the source is %q, want %q", got, s1)
			}
			for _, when := range []string{"again", "after a restart"} {
				if when == "after a restart" {
					w.Restart()
				}
				again, err := w.v1.CreateVolume(ctx, r)
				if err != nil || !proto.Equal(again, first) {
					t.Errorf("%s: %v, %v, want %v", when, again, err, first)
				}
			}
			for what, source := range map[string]*csi.VolumeContentSource{"no source": nil, "another snapshot": fromSnapshot(s2), "a volume": fromVolume("tank/pvc-src")} {
				r.VolumeContentSource = source
				_, err := w.v1.CreateVolume(ctx, r)
				wantCode(t, what, err, "source", codes.AlreadyExists)
			}
		})
	}
}

// slowCreate is a zfs whose create of some datasets waits to be let go.
type slowCreate struct {
	volume.ZFS
	word    string
	entered atomic.Int32
	let     chan struct{}
}

func (z *slowCreate) Create(ctx context.Context, s zfs.Spec) error {
	if !strings.Contains(s.Name, z.word) {
		return z.ZFS.Create(ctx, s)
	}
	z.entered.Add(1)
	select {
	case <-z.let:
	case <-ctx.Done():
		return ctx.Err()
	}
	return z.ZFS.Create(ctx, s)
}

// A CreateVolume that comes again while the first still runs makes no second
// volume.
func TestC11OneVolumeForOneNameWhileTheFirstCallRuns(t *testing.T) {
	for _, version := range []int{0, 1} {
		slow := &slowCreate{word: "pvc-dup", let: make(chan struct{})}
		w := start(t, func(p *inprocess.Parts) { slow.ZFS = p.ZFS; p.ZFS = slow })
		p := versions(w.conn)[version]
		r := creation("pvc-dup", "iscsi", 1<<30, asFilesystem(""))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := p.CreateVolume(ctx, r)
		cancel()
		wantCode(t, "the first call", err, "", codes.DeadlineExceeded)
		if slow.entered.Load() != 1 {
			t.Fatal("zfs create does not run, so nothing is repeated meanwhile")
		}
		for range 2 {
			_, err := p.CreateVolume(t.Context(), r)
			wantCode(t, "while it runs", err, "", codes.Aborted)
		}
		if slow.entered.Load() != 1 {
			t.Errorf("%d commands run side by side", slow.entered.Load())
		}
		close(slow.let)
		var answer *csi.CreateVolumeResponse
		eventually(t, "the first call's work has ended", 10*time.Second, func() bool {
			answer, err = p.CreateVolume(t.Context(), r)
			return status.Code(err) != codes.Aborted
		})
		if err != nil || answer.GetVolume().GetVolumeId() != "tank/pvc-dup" {
			t.Errorf("%v, %v", answer, err)
		}
		if made := w.datasets("pvc-dup"); len(made) != 1 {
			t.Errorf("made %q", made)
		}
	}
}
