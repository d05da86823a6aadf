package v0

import (
	"errors"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// FuzzTranslate sends any v0 request through any method, with any v1 answer
// coming back: neither may panic, and both results must be sendable.
func FuzzTranslate(f *testing.F) {
	list := rpcs(f)
	for i, rpc := range list {
		for alternative := range 2 {
			request, answer := rpc.request(), rpc.v1Answer()
			fill := &filler{alternative: alternative}
			fill.fill(request)
			fill.fill(answer)
			f.Add(uint8(i), encode(f, request), encode(f, answer))
		}
		f.Add(uint8(i), []byte{}, []byte{})
	}

	f.Fuzz(func(t *testing.T, method uint8, request, answer []byte) {
		rpc := list[int(method)%len(list)]
		q, v1 := rpc.request(), &recorder{answer: rpc.v1Answer()}
		if proto.Unmarshal(request, q) != nil || proto.Unmarshal(answer, v1.answer) != nil {
			return
		}
		got, err := rpc.call(t.Context(), v1, q)
		encode(t, v1.request)
		if probe, ok := v1.answer.(*csi.ProbeResponse); ok && probe.GetReady() != nil && !probe.GetReady().GetValue() {
			if !errors.Is(err, fault.Precondition) {
				t.Fatalf("a probe that is not ready: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", rpc.name, err)
		}
		encode(t, got)
	})
}

func encode(t testing.TB, message proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(message)
	if err != nil {
		t.Fatalf("%T: %v", message, err)
	}
	return wire
}
