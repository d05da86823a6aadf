package csi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/fault"
)

var codeByKind = map[error]codes.Code{
	fault.Invalid:      codes.InvalidArgument,
	fault.NotFound:     codes.NotFound,
	fault.Exists:       codes.AlreadyExists,
	fault.Range:        codes.OutOfRange,
	fault.Exhausted:    codes.ResourceExhausted,
	fault.Precondition: codes.FailedPrecondition,
	fault.Busy:         codes.Aborted,
	fault.Aborted:      codes.Aborted,
	fault.Unavailable:  codes.Unavailable,
}

// toStatus turns an error of the domain into what both versions of CSI answer:
// a code, a text that is never empty, and no details. It is the only place
// that does. ctx is the caller's: once it is over, that is what the caller is
// told, whatever broke because of it.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	code := codes.Internal
	kind := fault.Kind(err)
	known, ok := codeByKind[kind] // without ok it would be codes.OK
	switch {
	case ok && kind != fault.Unavailable:
		code = known
	case ctx.Err() != nil:
		code = status.FromContextError(ctx.Err()).Code()
	case ok:
		code = known
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	default:
		if s, ok := status.FromError(err); ok {
			code = s.Code()
		}
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	if text == "" {
		text = code.String()
	}
	return status.Error(code, text)
}
