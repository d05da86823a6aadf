package fault_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestKindIsTheOutermost(t *testing.T) {
	inner := fault.New(fault.NotFound, "no volume")
	plain := errors.New("plain")
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"nil", nil, nil},
		{"plain", plain, nil},
		{"itself", inner, fault.NotFound},
		{"wrapped", fmt.Errorf("read: %w", inner), fault.NotFound},
		{"joined behind a plain one", errors.Join(plain, inner), fault.NotFound},
		{"a kind around a kind", fault.New(fault.Precondition, "first: %w", inner), fault.Precondition},
	} {
		if got := fault.Kind(c.err); got != c.want {
			t.Errorf("%s: Kind is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestKindAndCauseAreBothVisible(t *testing.T) {
	err := fault.New(fault.Unavailable, "read %s: %w", "tank", io.ErrUnexpectedEOF)
	for _, want := range []error{fault.Unavailable, io.ErrUnexpectedEOF} {
		if !errors.Is(err, want) {
			t.Errorf("errors.Is(%v) is false", want)
		}
	}
	if errors.Is(err, fault.Invalid) {
		t.Error("another kind matches")
	}
	if got, want := err.Error(), "read tank: unexpected EOF"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
}
