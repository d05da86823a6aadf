//go:build faults

package steps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// podsVolume is a volume of a pod's own, as the kubelet asks for it.
type podsVolume struct {
	*fakes
	t      *testing.T
	use    Use
	target string
	empty  []string
}

const handle = "csi-0123456789"

func (v *podsVolume) publish(ctx context.Context) error {
	attributes := map[string]string{
		"protocol": v.use.Parameters["protocol"], "csi.storage.k8s.io/ephemeral": "true",
		"csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "shop",
	}
	_, err := csi.NewNodeClient(v.conn).NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: v.target, VolumeCapability: v.use.capability(), VolumeContext: attributes})
	return err
}

func (v *podsVolume) unpublish(ctx context.Context) error {
	_, err := csi.NewNodeClient(v.conn).NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: v.target})
	return err
}

// through makes a call until nothing of an earlier one is in its way.
func (v *podsVolume) through(call func(context.Context) error) error {
	_, err := Tour{Patience: 10 * time.Second}.repeat(v.t.Context(), callOf(call))
	return err
}

func callOf(do func(context.Context) error) call {
	return call{do: func(ctx context.Context) (proto.Message, error) { return &csi.NodePublishVolumeResponse{}, do(ctx) }}
}

// disturbed makes a call that is disturbed at its k-th step; hit is false when it
// has fewer.
func (v *podsVolume) disturbed(what string, k int, call func(context.Context) error) (hit bool, answer error) {
	v.t.Helper()
	if err := v.Plan(what, k); err != nil {
		v.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(v.t.Context(), 10*time.Second)
	defer cancel()
	answer = call(ctx)
	o, err := v.End(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	if o.Hit {
		v.t.Logf("%s at step %d of %q: %v", what, k, o.Steps, answer)
	}
	return o.Hit, answer
}

func (v *podsVolume) wantNothing(when string) {
	v.t.Helper()
	state, err := v.State()
	if err != nil {
		v.t.Fatal(err)
	}
	if !slices.Equal(state, v.empty) {
		v.t.Fatalf("%s there is %q", when, state)
	}
}

func (v *podsVolume) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// A pod's own volume is made and destroyed although each of the two calls is cut
// off, or fails, at each of its steps; and nothing is left of one that a kubelet
// gives up, which unpublishes only where the answer leaves something in doubt.
func TestEachStepOfAPodsVolumeOnFakes(t *testing.T) {
	for _, u := range Uses[:2] {
		for _, what := range []string{KillBefore, Fail} {
			t.Run(u.Name+", "+what, func(t *testing.T) {
				v := &podsVolume{fakes: newFakes(t), t: t, use: u}
				v.target = filepath.Join(v.Dir(), "pod", "mount")
				v.must(os.MkdirAll(filepath.Dir(v.target), 0o755))
				// What the first volume leaves is no volume's.
				v.must(v.through(v.publish))
				v.must(v.through(v.unpublish))
				var err error
				if v.empty, err = v.State(); err != nil {
					t.Fatal(err)
				}
				published := v.eachPublish(what)
				unpublished := v.eachUnpublish(what)
				t.Logf("%d steps of a publish, %d of an unpublish", published, unpublished)
				if published < 20 || unpublished < 15 {
					t.Errorf("%d steps of a publish and %d of an unpublish are too few to be all", published, unpublished)
				}
			})
		}
	}
}

func (v *podsVolume) eachPublish(what string) (steps int) {
	for k := 1; ; k++ {
		hit, answer := v.disturbed(what, k, v.publish)
		if !hit {
			v.must(answer)
			v.must(v.through(v.unpublish))
			v.wantNothing("after the life")
			return k - 1
		}
		// A daemon that was killed has not answered.
		if answer == nil || what != Fail || inDoubt(answer) {
			v.must(v.through(v.unpublish))
		}
		v.wantNothing(fmt.Sprintf("after %v, and the kubelet gave up,", answer))
		if what == Fail && !inDoubt(answer) {
			continue // a repeat begins anew
		}
		// Once more, and this time the kubelet goes on.
		if _, answer = v.disturbed(what, k, v.publish); answer != nil {
			v.must(v.through(v.publish))
		}
		v.must(v.Write(v.target, false, payload))
		v.must(v.through(v.publish))
		if got, err := v.Read(v.target, false, len(payload)); err != nil || string(got) != string(payload) {
			v.t.Fatalf("it holds %q, %v", got, err)
		}
		v.must(v.through(v.unpublish))
		v.wantNothing("after the life")
	}
}

func (v *podsVolume) eachUnpublish(what string) (steps int) {
	for k := 1; ; k++ {
		v.must(v.through(v.publish))
		hit, answer := v.disturbed(what, k, v.unpublish)
		if !hit {
			v.must(answer)
			v.wantNothing("after the life")
			return k - 1
		}
		v.must(v.through(v.unpublish))
		v.wantNothing(fmt.Sprintf("after %v, and the call again,", answer))
	}
}

// inDoubt reports whether a kubelet takes an answer for one after which something
// may be there (IsOperationFinishedError in its csi_client.go).
func inDoubt(err error) bool {
	return slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted}, status.Code(err))
}
