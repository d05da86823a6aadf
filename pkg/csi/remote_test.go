package csi

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// What one process answers is what another reads.
func TestRemoteErrorsKeepTheirKinds(t *testing.T) {
	r := &Remote{socket: "/run/x.sock"}
	for kind := range codeByKind {
		want := kind
		if kind == fault.Aborted {
			want = fault.Busy
		}
		got := r.fault(toStatus(t.Context(), fault.New(kind, "what to do")))
		if !errors.Is(got, want) || fault.Kind(got) != want {
			t.Errorf("%v became %v (%v)", kind, fault.Kind(got), got)
		}
	}
	for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
		if got := r.fault(toStatus(t.Context(), want)); !errors.Is(got, want) || fault.Kind(got) != nil {
			t.Errorf("%v became %v", want, got)
		}
	}
	if got := r.fault(toStatus(t.Context(), errors.New("odd"))); got == nil || fault.Kind(got) != nil || got.Error() != "odd" {
		t.Errorf("an internal error became %v", got)
	}
	if got := r.fault(nil); got != nil {
		t.Error(got)
	}
}

func TestCapabilitiesAreReadAsTheyAreWritten(t *testing.T) {
	for _, want := range []access.Capability{
		{Type: access.Mount, Mode: access.SingleNodeMultiWriter, FSType: "xfs", MountFlags: []string{"noatime"}},
		{Type: access.Block, Mode: access.SingleNodeWriter},
	} {
		got, err := capability(capabilityMessage(want))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
