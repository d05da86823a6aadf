// Package storm lets many callers use many volumes at once, in both versions of
// the interface, with calls sent twice and calls given up, and compares what is
// there at the end with a model.
package storm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// World is a driver in a storm.
type World struct {
	Conn *grpc.ClientConn
	// NodeID is of the node that volumes are published to.
	NodeID string
	// Parameters are of the volumes, in turn.
	Parameters []map[string]string
	SizeBytes  int64
	// Volumes, Callers and Calls say how many there are; Calls are all callers'.
	Volumes, Callers, Calls int
	// Seed decides what is done; how the calls meet is the machine's.
	Seed uint64
	// Patience bounds one call with all its repeats.
	Patience time.Duration
}

// Seed is what the environment's TARN_SEED says, so that a failure can be
// repeated, or else a new one.
func Seed() (uint64, error) {
	s := os.Getenv("TARN_SEED")
	if s == "" {
		return uint64(time.Now().UnixNano()), nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("TARN_SEED is %q, and must be a number", s)
	}
	return n, nil
}

// Volume is what the model knows of a volume.
type Volume struct {
	ID, Name   string
	Parameters map[string]string
	Exists     bool
	Published  bool
	// Snapshots are the ids of those that are there, also after their volume.
	Snapshots map[string]bool
	taken     int
}

// Storm is a world and its model.
type Storm struct {
	w       World
	v0      csiv0.ControllerClient
	v1      csi.ControllerClient
	volumes []*Volume
}

// New is a storm over volumes that are not there yet.
func New(w World) *Storm {
	s := &Storm{w: w, v0: csiv0.NewControllerClient(w.Conn), v1: csi.NewControllerClient(w.Conn)}
	for i := range w.Volumes {
		s.volumes = append(s.volumes, &Volume{
			Name: fmt.Sprintf("storm-%d", i), Parameters: w.Parameters[i%len(w.Parameters)], Snapshots: map[string]bool{}})
	}
	return s
}

// Volumes is the model; only for when no call runs.
func (s *Storm) Volumes() []*Volume { return s.volumes }

// Run makes the calls. A volume is used by one caller, so the model is exact;
// that caller makes a call twice at once, or gives it up, as orchestrators do.
func (s *Storm) Run(ctx context.Context) error {
	errs := make([]error, s.w.Callers)
	var callers sync.WaitGroup
	for c := range s.w.Callers {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(s.w.Seed, uint64(c)))
			var own []*Volume
			for i := c; i < len(s.volumes); i += s.w.Callers {
				own = append(own, s.volumes[i])
			}
			for range s.w.Calls / s.w.Callers {
				if err := s.step(ctx, random, own[random.IntN(len(own))]); err != nil {
					errs[c] = err
					return
				}
			}
		})
	}
	callers.Wait()
	return errors.Join(errs...)
}

// Drain deletes everything.
func (s *Storm) Drain(ctx context.Context) error {
	errs := make([]error, s.w.Callers)
	var callers sync.WaitGroup
	for c := range s.w.Callers {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(s.w.Seed, uint64(c)))
			for i := c; i < len(s.volumes) && errs[c] == nil; i += s.w.Callers {
				errs[c] = s.end(ctx, random, s.volumes[i])
			}
		})
	}
	callers.Wait()
	return errors.Join(errs...)
}

func (s *Storm) end(ctx context.Context, random *rand.Rand, v *Volume) error {
	var err error
	if v.Published {
		err = s.unpublish(ctx, random, v)
	}
	if err == nil && v.Exists {
		err = s.remove(ctx, random, v)
	}
	for id := range maps.Clone(v.Snapshots) {
		if err == nil {
			err = s.removeSnapshot(ctx, random, v, id)
		}
	}
	return err
}

func (s *Storm) step(ctx context.Context, random *rand.Rand, v *Volume) error {
	switch {
	case !v.Exists && len(v.Snapshots) > 0 && random.IntN(2) == 0:
		return s.removeSnapshot(ctx, random, v, slices.Min(slices.Collect(maps.Keys(v.Snapshots))))
	case !v.Exists:
		return s.create(ctx, random, v)
	}
	switch random.IntN(7) {
	case 0:
		return s.create(ctx, random, v) // a repeat
	case 1, 2:
		if v.Published {
			return s.unpublish(ctx, random, v)
		}
		return s.publish(ctx, random, v)
	case 3:
		return s.publish(ctx, random, v) // perhaps a repeat
	case 4:
		return s.snapshot(ctx, random, v)
	case 5:
		if len(v.Snapshots) > 0 {
			return s.removeSnapshot(ctx, random, v, slices.Min(slices.Collect(maps.Keys(v.Snapshots))))
		}
		return s.snapshot(ctx, random, v)
	default:
		return s.remove(ctx, random, v)
	}
}

// settle makes a call until it succeeds: at times given up first, at times twice
// at once. Every answer that says yes must be the same.
func (s *Storm) settle(ctx context.Context, random *rand.Rand, what string, call func(context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.w.Patience)
	defer cancel()
	if random.IntN(4) == 0 {
		short, giveUp := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(300*time.Millisecond))))
		_, err := call(short)
		giveUp()
		if err != nil && !passing(err) {
			return "", fmt.Errorf("%s, given up: %w", what, err)
		}
	}
	twins := 1
	if random.IntN(4) == 0 {
		twins = 2
	}
	var mu sync.Mutex
	var answers []string
	var errs []error
	var both sync.WaitGroup
	for range twins {
		both.Go(func() {
			answer, err := s.repeat(ctx, call)
			mu.Lock()
			defer mu.Unlock()
			answers, errs = append(answers, answer), append(errs, err)
		})
	}
	both.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	if answers[0] != answers[len(answers)-1] {
		return "", fmt.Errorf("%s: two answers, %q and %q", what, answers[0], answers[1])
	}
	return answers[0], nil
}

// passing reports that a call may succeed when it is made again.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Aborted, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	return false
}

func (s *Storm) repeat(ctx context.Context, call func(context.Context) (string, error)) (string, error) {
	const between = 20 * time.Millisecond
	tick := time.NewTicker(between)
	defer tick.Stop()
	for {
		answer, err := call(ctx)
		if err == nil || !passing(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("not in %s: %w", s.w.Patience, err)
		case <-tick.C:
		}
	}
}

func (s *Storm) create(ctx context.Context, random *rand.Rand, v *Volume) error {
	old := random.IntN(2) == 0
	id, err := s.settle(ctx, random, "create "+v.Name, func(ctx context.Context) (string, error) {
		if old {
			r, err := s.v0.CreateVolume(ctx, &csiv0.CreateVolumeRequest{
				Name: v.Name, CapacityRange: &csiv0.CapacityRange{RequiredBytes: s.w.SizeBytes}, Parameters: v.Parameters,
				VolumeCapabilities: []*csiv0.VolumeCapability{capabilityV0()}})
			return r.GetVolume().GetId(), err
		}
		r, err := s.v1.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: v.Name, CapacityRange: &csi.CapacityRange{RequiredBytes: s.w.SizeBytes}, Parameters: v.Parameters,
			VolumeCapabilities: []*csi.VolumeCapability{capability()}})
		return r.GetVolume().GetVolumeId(), err
	})
	if err != nil {
		return err
	}
	if v.ID != "" && v.ID != id {
		return fmt.Errorf("create %s: the id is %s, and was %s", v.Name, id, v.ID)
	}
	v.ID, v.Exists = id, true
	return nil
}

// remove of a published volume must be refused.
func (s *Storm) remove(ctx context.Context, random *rand.Rand, v *Volume) error {
	old := random.IntN(2) == 0
	_, err := s.settle(ctx, random, "delete "+v.ID, func(ctx context.Context) (string, error) {
		if old {
			_, err := s.v0.DeleteVolume(ctx, &csiv0.DeleteVolumeRequest{VolumeId: v.ID})
			return "", err
		}
		_, err := s.v1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.ID})
		return "", err
	})
	if v.Published {
		if status.Code(err) != codes.FailedPrecondition {
			return fmt.Errorf("delete of the published %s: %w, want it to be refused", v.ID, err)
		}
		return nil
	}
	if err == nil {
		v.Exists = false
	}
	return err
}

func (s *Storm) publish(ctx context.Context, random *rand.Rand, v *Volume) error {
	old := random.IntN(2) == 0
	_, err := s.settle(ctx, random, "publish "+v.ID, func(ctx context.Context) (string, error) {
		if old {
			r, err := s.v0.ControllerPublishVolume(ctx, &csiv0.ControllerPublishVolumeRequest{
				VolumeId: v.ID, NodeId: s.w.NodeID, VolumeCapability: capabilityV0()})
			return fmt.Sprint(r.GetPublishInfo()), err
		}
		r, err := s.v1.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: v.ID, NodeId: s.w.NodeID, VolumeCapability: capability()})
		return fmt.Sprint(r.GetPublishContext()), err
	})
	if err == nil {
		v.Published = true
	}
	return err
}

func (s *Storm) unpublish(ctx context.Context, random *rand.Rand, v *Volume) error {
	old := random.IntN(2) == 0
	_, err := s.settle(ctx, random, "unpublish "+v.ID, func(ctx context.Context) (string, error) {
		if old {
			_, err := s.v0.ControllerUnpublishVolume(ctx, &csiv0.ControllerUnpublishVolumeRequest{VolumeId: v.ID, NodeId: s.w.NodeID})
			return "", err
		}
		_, err := s.v1.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.ID, NodeId: s.w.NodeID})
		return "", err
	})
	if err == nil {
		v.Published = false
	}
	return err
}

func (s *Storm) snapshot(ctx context.Context, random *rand.Rand, v *Volume) error {
	v.taken++
	name := fmt.Sprintf("%s-s%d", v.Name, v.taken)
	id, err := s.settle(ctx, random, "snapshot "+name, func(ctx context.Context) (string, error) {
		r, err := s.v1.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: v.ID})
		return r.GetSnapshot().GetSnapshotId(), err
	})
	if err == nil {
		v.Snapshots[id] = true
	}
	return err
}

func (s *Storm) removeSnapshot(ctx context.Context, random *rand.Rand, v *Volume, id string) error {
	_, err := s.settle(ctx, random, "delete "+id, func(ctx context.Context) (string, error) {
		_, err := s.v1.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		return "", err
	})
	if err == nil {
		delete(v.Snapshots, id)
	}
	return err
}

// Listed compares the driver's lists with the model.
func (s *Storm) Listed(ctx context.Context) error {
	var want, have []string
	for _, v := range s.volumes {
		if v.Exists {
			want = append(want, fmt.Sprint(v.ID, " published ", v.Published))
		}
		for id := range v.Snapshots {
			want = append(want, id)
		}
	}
	volumes, err := s.v1.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil {
		return err
	}
	for _, e := range volumes.GetEntries() {
		have = append(have, fmt.Sprint(e.GetVolume().GetVolumeId(), " published ", len(e.GetStatus().GetPublishedNodeIds()) > 0))
	}
	snapshots, err := s.v1.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	if err != nil {
		return err
	}
	for _, e := range snapshots.GetEntries() {
		have = append(have, e.GetSnapshot().GetSnapshotId())
	}
	return Same("the lists", want, have)
}

// Same compares two lists in whatever order.
func Same(what string, want, have []string) error {
	slices.Sort(want)
	slices.Sort(have)
	missing := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(have, s) })
	extra := slices.DeleteFunc(slices.Clone(have), func(s string) bool { return slices.Contains(want, s) })
	if len(want) == len(have) && len(missing) == 0 && len(extra) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d, want %d; missing %v, too many %v", what, len(have), len(want), missing, extra)
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

func capabilityV0() *csiv0.VolumeCapability {
	return &csiv0.VolumeCapability{
		AccessMode: &csiv0.VolumeCapability_AccessMode{Mode: csiv0.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csiv0.VolumeCapability_Mount{Mount: &csiv0.VolumeCapability_MountVolume{}},
	}
}
