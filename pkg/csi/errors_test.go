package csi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
)

// kinds is the table of errors in the design, written apart from the code.
var kinds = map[error]codes.Code{
	fault.Invalid: codes.InvalidArgument, fault.NotFound: codes.NotFound, fault.Exists: codes.AlreadyExists, fault.Range: codes.OutOfRange,
	fault.Exhausted: codes.ResourceExhausted, fault.Precondition: codes.FailedPrecondition, fault.Busy: codes.Aborted,
	fault.Aborted: codes.Aborted, fault.Unavailable: codes.Unavailable,
}

func over(err error) context.Context {
	if err == context.Canceled {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	cancel()
	return ctx
}

func detailed(code codes.Code, text string) error {
	s, err := status.New(code, text).WithDetails(durationpb.New(1))
	if err != nil {
		panic(err)
	}
	return s.Err()
}

func TestEveryErrorHasItsCode(t *testing.T) {
	alive := context.Background()
	late, gone := over(context.DeadlineExceeded), over(context.Canceled)
	type row struct {
		name string
		ctx  context.Context
		err  error
		code codes.Code
		text string
	}
	table := []row{
		{"nil", alive, nil, codes.OK, ""},
		{"nil, though the caller is gone", gone, nil, codes.OK, ""},
		{"plain", alive, io.EOF, codes.Internal, "EOF"},
		{"no text", alive, errors.New(""), codes.Internal, "Internal"},
		{"a panic below", alive, &op.PanicError{Value: "boom"}, codes.Internal, "panic: boom"},
		{"a kind that the table lacks", alive, fault.New(io.EOF, "odd"), codes.Internal, "odd"},
		{"no kind", alive, fault.New(nil, "odd"), codes.Internal, "odd"},
		{"a bare kind", alive, fault.NotFound, codes.Internal, "not found"},
		{"kind around kind", alive, fault.New(fault.Precondition, "a: %w", fault.New(fault.NotFound, "b")), codes.FailedPrecondition, "a: b"},
		{"own deadline", alive, fmt.Errorf("zfs: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "zfs: context deadline exceeded"},
		{"a child's deadline", alive, fmt.Errorf("a: %w", &run.Error{Line: "zfs list", Code: -1, Err: context.DeadlineExceeded}), codes.DeadlineExceeded, "a: zfs list: context deadline exceeded"},
		{"own cancel", alive, context.Canceled, codes.Canceled, "context canceled"},
		{"caller's deadline", late, errors.New("killed"), codes.DeadlineExceeded, "killed"},
		{"caller hung up", gone, errors.New("killed"), codes.Canceled, "killed"},
		{"unavailable because the caller is late", late, fault.New(fault.Unavailable, "no answer"), codes.DeadlineExceeded, "no answer"},
		{"not found, though the caller is late", late, fault.New(fault.NotFound, "none"), codes.NotFound, "none"},
		{"a status", alive, status.Error(codes.Unimplemented, "no such method"), codes.Unimplemented, "no such method"},
		{"a status without text", alive, status.Error(codes.DataLoss, ""), codes.DataLoss, "DataLoss"},
		{"a status with details", alive, detailed(codes.NotFound, "none"), codes.NotFound, "none"},
		{"a wrapped status", alive, fmt.Errorf("a: %w", status.Error(codes.NotFound, "none")), codes.NotFound, "a: rpc error: code = NotFound desc = none"},
		{"a kind around a status", alive, fault.New(fault.Exists, "a: %w", status.Error(codes.NotFound, "none")), codes.AlreadyExists, "a: rpc error: code = NotFound desc = none"},
	}
	for kind, code := range kinds {
		err := fault.New(kind, "text of %s", "it")
		table = append(table,
			row{kind.Error(), alive, err, code, "text of it"},
			row{kind.Error() + ", wrapped", alive, fmt.Errorf("a: %w", fmt.Errorf("b: %w", err)), code, "a: b: text of it"},
			row{kind.Error() + ", joined", alive, errors.Join(io.EOF, err), code, "EOF\ntext of it"},
			row{kind.Error() + ", around a deadline", alive, fault.New(kind, "a: %w", context.DeadlineExceeded), code, "a: context deadline exceeded"},
			row{kind.Error() + ", no text", alive, fault.New(kind, ""), code, code.String()},
		)
	}
	if len(kinds) != len(codeByKind) {
		t.Errorf("the design has %d kinds, the code %d", len(kinds), len(codeByKind))
	}
	for _, r := range table {
		got := toStatus(r.ctx, r.err)
		if (got == nil) != (r.code == codes.OK) {
			t.Errorf("%s: got %v", r.name, got)
			continue
		}
		s := status.Convert(got)
		if s.Code() != r.code || s.Message() != r.text || len(s.Details()) > 0 {
			t.Errorf("%s: got %s %q with %d details, want %s %q", r.name, s.Code(), s.Message(), len(s.Details()), r.code, r.text)
		}
	}
}

func TestAStatusIsNotChangedByASecondLook(t *testing.T) {
	once := toStatus(t.Context(), fault.New(fault.Busy, "since noon"))
	if twice := toStatus(t.Context(), once); twice.Error() != once.Error() || !strings.Contains(once.Error(), "since noon") {
		t.Errorf("%v becomes %v", once, twice)
	}
}
