//go:build !guest && !faults

package faults

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// ListSnapshots keeps each filter, alone and with the page limit.
func TestC02ListSnapshotsKeepsItsFilters(t *testing.T) {
	w, ctx := start(t), t.Context()
	snapshot := map[string]string{}
	for volume, names := range map[string][]string{"vol-a": {"a1", "a2"}, "vol-b": {"b1"}} {
		must[*csi.CreateVolumeResponse](t, volume)(w.v1.CreateVolume(ctx, creation(volume, "nfs", 64*mib, asFilesystem(""))))
		for _, name := range names {
			s := must[*csi.CreateSnapshotResponse](t, name)(w.v1.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: "tank/" + volume}))
			snapshot[name] = s.GetSnapshot().GetSnapshotId()
		}
	}
	list := func(r *csi.ListSnapshotsRequest) (ids []string, token string, err error) {
		answer, err := w.v1.ListSnapshots(ctx, r)
		for _, e := range answer.GetEntries() {
			ids = append(ids, e.GetSnapshot().GetSnapshotId())
		}
		return ids, answer.GetNextToken(), err
	}
	ofA := []string{snapshot["a1"], snapshot["a2"]}

	_, _, err := list(&csi.ListSnapshotsRequest{MaxEntries: -1})
	wantCode(t, "a negative page", err, "negative", codes.InvalidArgument)
	must[*csi.ProbeResponse](t, "the daemon lives")(w.v1.Probe(ctx, &csi.ProbeRequest{}))
	_, _, err = list(&csi.ListSnapshotsRequest{StartingToken: "zzz"})
	wantCode(t, "a token of nobody", err, "", codes.Aborted)

	for _, c := range []struct {
		what string
		r    *csi.ListSnapshotsRequest
		want []string
	}{
		{"all", &csi.ListSnapshotsRequest{}, append(slices.Clone(ofA), snapshot["b1"])},
		{"source", &csi.ListSnapshotsRequest{SourceVolumeId: "tank/vol-a"}, ofA},
		{"contradiction", &csi.ListSnapshotsRequest{SourceVolumeId: "tank/vol-b", SnapshotId: snapshot["a1"]}, nil},
		{"agreement", &csi.ListSnapshotsRequest{SourceVolumeId: "tank/vol-a", SnapshotId: snapshot["a1"]}, ofA[:1]},
		{"unknown", &csi.ListSnapshotsRequest{SnapshotId: "nope"}, nil},
	} {
		if ids, token, err := list(c.r); err != nil || token != "" || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %q, token %q, %v, want %q", c.what, ids, token, err, c.want)
		}
	}

	page := &csi.ListSnapshotsRequest{SourceVolumeId: "tank/vol-a", MaxEntries: 1}
	first, token, err := list(page)
	if err != nil || token == "" || !slices.Equal(first, ofA[:1]) {
		t.Fatalf("page one: %q, token %q, %v", first, token, err)
	}
	next := &csi.ListSnapshotsRequest{SourceVolumeId: "tank/vol-a", MaxEntries: 1, StartingToken: token}
	for range 2 { // a token stays good
		if ids, more, err := list(next); err != nil || more != "" || !slices.Equal(ids, ofA[1:]) {
			t.Errorf("page two: %q, token %q, %v", ids, more, err)
		}
	}
	must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(w.v1.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot["a1"]}))
	if ids, more, err := list(next); err != nil || more != "" || !slices.Equal(ids, ofA[1:]) {
		t.Errorf("page two after a1 is deleted: %q, token %q, %v", ids, more, err)
	}
}
