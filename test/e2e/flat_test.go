//go:build guest

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"

	"github.com/tarn-csi/tarn/test/harness"
)

// fewVolumes and manyVolumes are between which no call may become dearer;
// moreVolumes where the test may take long.
const (
	fewVolumes  = 10
	manyVolumes = 50
	moreVolumes = 2000
	fillCallers = 16
)

// What CreateVolume, ControllerPublishVolume, CreateSnapshot and the calls that
// undo them start, and what those read of ZFS, does not depend on what else is
// in the pool.
func TestCostDoesNotGrow(t *testing.T) {
	many := moreVolumes
	if testing.Short() {
		many = manyVolumes
	}
	t.Cleanup(func() { fill(t, 0, many, emptyOne) })
	fill(t, 0, fewVolumes, fillOne)
	few := costs(t)
	fill(t, fewVolumes, many, fillOne)
	for i, more := range costs(t) {
		if !slices.Equal(few[i], more) {
			t.Errorf("with %d volumes and snapshots in the pool:\n\t%s\nwith %d:\n\t%s",
				fewVolumes, strings.Join(few[i], "\n\t"), many, strings.Join(more, "\n\t"))
		}
	}
}

func fill(t *testing.T, from, to int, do func(t *testing.T, i int) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(fillCallers)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(t, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func fillOne(t *testing.T, i int) error {
	k := kinds[0]
	v, err := controllerV1().CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: fmt.Sprintf("fill-%d", i), CapacityRange: &csi.CapacityRange{RequiredBytes: k.sizeBytes}, Parameters: k.parameters,
		VolumeCapabilities: []*csi.VolumeCapability{k.capabilityV1()}})
	if err != nil {
		return err
	}
	_, err = controllerV1().CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{
		Name: fmt.Sprintf("fill-s-%d", i), SourceVolumeId: v.GetVolume().GetVolumeId()})
	return err
}

// emptyOne undoes fillOne; the test's own context has ended by then.
func emptyOne(_ *testing.T, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	if _, err := controllerV1().DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: fmt.Sprintf("p/fill-%d@fill-s-%d", i, i)}); err != nil {
		return err
	}
	_, err := controllerV1().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: fmt.Sprintf("p/fill-%d", i)})
	return err
}

// costs are the commands of each call, and how many lines each of them read.
func costs(t *testing.T) [][]string {
	t.Helper()
	watch, err := harness.WatchChildren(host.Daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	var list [][]string
	measure := func(what string, call func()) {
		t.Helper()
		direct, _, log := during(t, watch, call)
		list = append(list, append([]string{what, fmt.Sprintf("%d processes", len(direct)-byTheClock(log))}, readBy(log)...))
	}
	for _, k := range []kind{kinds[0], kinds[3]} {
		var l *live
		measure(k.name+" CreateVolume", func() { l = create(t, k, "cost") })
		measure(k.name+" ControllerPublishVolume", l.publish)
		measure(k.name+" ControllerUnpublishVolume", l.unpublish)
		measure(k.name+" CreateSnapshot", func() {
			must[*csi.CreateSnapshotResponse](t, "CreateSnapshot")(controllerV1().CreateSnapshot(deadline(t),
				&csi.CreateSnapshotRequest{Name: "cost", SourceVolumeId: l.id}))
		})
		measure(k.name+" DeleteSnapshot", func() {
			must[*csi.DeleteSnapshotResponse](t, "DeleteSnapshot")(controllerV1().DeleteSnapshot(deadline(t),
				&csi.DeleteSnapshotRequest{SnapshotId: l.id + "@cost"}))
		})
		measure(k.name+" DeleteVolume", l.remove)
	}
	return list
}

// during is what the daemon started while a call ran, what that started, and what the
// daemon logged.
func during(t *testing.T, watch *harness.Children, call func()) (direct, others []string, log string) {
	t.Helper()
	if _, _, err := watch.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	logged := len(host.Daemon.Log())
	call()
	direct, others, err := watch.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return direct, others, host.Daemon.Log()[logged:]
}

// byTheClock counts in a piece of the daemon's log the children that no call starts:
// the node's side looks twice a minute whether it could mount.
func byTheClock(log string) int {
	return strings.Count(log, `msg="child started" command="modprobe --dry-run `)
}

// said is a line of the daemon's log about what a child printed.
var said = regexp.MustCompile(`msg="child said" command="(zfs [a-z]+) .*" lines=(\d+)`)

// readBy are the zfs commands in a piece of the daemon's log and how many lines
// each printed.
func readBy(log string) []string {
	var list []string
	for line := range strings.Lines(log) {
		if m := said.FindStringSubmatch(line); m != nil {
			list = append(list, fmt.Sprintf("%s: %s lines", m[1], m[2]))
		}
	}
	return list
}
