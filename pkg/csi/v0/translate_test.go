package v0

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/fault"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func TestEveryRequestFieldArrives(t *testing.T) {
	for _, rpc := range rpcs(t) {
		for alternative := range 2 {
			t.Run(fmt.Sprintf("%s/%d", rpc.name, alternative), func(t *testing.T) {
				request, want := rpc.request(), rpc.v1Request()
				(&filler{alternative: alternative}).fill(request)
				copyByName(t, request.ProtoReflect(), want.ProtoReflect())

				v1 := &recorder{answer: rpc.v1Answer()}
				type key struct{}
				ctx := context.WithValue(t.Context(), key{}, rpc.name)
				if _, err := rpc.call(ctx, v1, request); err != nil {
					t.Fatal(err)
				}
				if v1.method != rpc.v1 {
					t.Errorf("called %s, want %s", v1.method, rpc.v1)
				}
				if v1.ctx == nil || v1.ctx.Value(key{}) != rpc.name {
					t.Error("the context did not arrive")
				}
				if diff := cmp.Diff(want, v1.request, protocmp.Transform()); diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestEveryAnswerFieldReturns(t *testing.T) {
	// Their answers are not copies, and have tables of their own.
	differs := map[string]bool{
		"GetPluginCapabilities":      true,
		"ControllerGetCapabilities":  true,
		"NodeGetCapabilities":        true,
		"ValidateVolumeCapabilities": true,
	}
	for _, rpc := range rpcs(t) {
		if differs[rpc.name] {
			continue
		}
		t.Run(rpc.name, func(t *testing.T) {
			answer, want := rpc.v1Answer(), rpc.answer()
			(&filler{}).fill(answer)
			copyByName(t, answer.ProtoReflect(), want.ProtoReflect())

			got, err := rpc.call(t.Context(), &recorder{answer: answer}, rpc.request())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsetStaysUnset(t *testing.T) {
	for _, rpc := range rpcs(t) {
		v1 := &recorder{answer: rpc.v1Answer()}
		if _, err := rpc.call(t.Context(), v1, rpc.request()); err != nil {
			t.Errorf("%s: %v", rpc.name, err)
			continue
		}
		if diff := cmp.Diff(rpc.v1Request(), v1.request, protocmp.Transform()); diff != "" {
			t.Errorf("%s of an empty request (-want +got):\n%s", rpc.name, diff)
		}
	}
}

func TestErrorsPassUntouched(t *testing.T) {
	for _, want := range []error{
		fault.New(fault.NotFound, "no volume %s", "tank/a"),
		fault.New(fault.Busy, "published since noon"),
		status.Error(codes.Unimplemented, "not served"),
		context.DeadlineExceeded,
	} {
		for _, rpc := range rpcs(t) {
			answer, err := rpc.call(t.Context(), &recorder{answer: rpc.v1Answer(), err: want}, rpc.request())
			if err != want { // the very same value is the promise
				t.Errorf("%s: error %v became %v", rpc.name, want, err)
			}
			if !reflect.ValueOf(answer).IsNil() {
				t.Errorf("%s: an answer beside the error: %v", rpc.name, answer)
			}
		}
	}
}

func TestNilMessagesAreEmpty(t *testing.T) {
	for _, rpc := range rpcs(t) {
		none := reflect.Zero(reflect.TypeOf(rpc.request())).Interface().(proto.Message)
		v1 := &recorder{} // answers nil
		answer, err := rpc.call(t.Context(), v1, none)
		if err != nil {
			t.Errorf("%s: %v", rpc.name, err)
			continue
		}
		if reflect.ValueOf(answer).IsNil() {
			t.Errorf("%s: a nil answer", rpc.name)
		}
		if reflect.ValueOf(v1.request).IsNil() {
			t.Errorf("%s: the v1 server got a nil request", rpc.name)
		}
	}
}

func TestNilElementsStayEmpty(t *testing.T) {
	v1 := &recorder{answer: &csi.ListVolumesResponse{Entries: []*csi.ListVolumesResponse_Entry{nil, {}}}}
	list, err := NewController(v1).ListVolumes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &csiv0.ListVolumesResponse{Entries: []*csiv0.ListVolumesResponse_Entry{{}, {}}}
	if diff := cmp.Diff(want, list, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	v1 = &recorder{}
	request := &csiv0.CreateVolumeRequest{VolumeCapabilities: []*csiv0.VolumeCapability{nil, {AccessType: &csiv0.VolumeCapability_Mount{}}}}
	if _, err := NewController(v1).CreateVolume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	got := last[*csi.CreateVolumeRequest](t, v1).GetVolumeCapabilities()
	if len(got) != 2 || got[1].GetMount() == nil {
		t.Errorf("capabilities %v, want a second one that mounts", got)
	}
}

// The fields of this schema that may hold secrets all go to the marked fields
// of v1, and to no other.
func TestSecretsArriveOnlyAsSecrets(t *testing.T) {
	for _, rpc := range rpcs(t) {
		request := rpc.request()
		fields := request.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			if v1Name(field.Name()) != "secrets" {
				continue
			}
			only := rpc.request()
			entries := only.ProtoReflect().Mutable(field).Map()
			entries.Set((&filler{}).scalar(field.MapKey()).MapKey(), (&filler{}).scalar(field.MapValue()))
			v1 := &recorder{}
			if _, err := rpc.call(t.Context(), v1, only); err != nil {
				t.Fatal(err)
			}
			secrets := v1.request.ProtoReflect().Descriptor().Fields().ByName("secrets")
			marked, _ := proto.GetExtension(secrets.Options(), csi.E_CsiSecret).(bool)
			if !marked {
				t.Errorf("%s is not marked as secret", secrets.FullName())
			}
			v1.request.ProtoReflect().Clear(secrets)
			if proto.Size(v1.request) != 0 {
				t.Errorf("%s arrives elsewhere too: %v", field.FullName(), v1.request)
			}
		}
	}
}
