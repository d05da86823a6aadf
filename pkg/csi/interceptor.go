package csi

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tarn-csi/tarn/pkg/op"
)

// Interceptor returns what surrounds every RPC of both versions: a request id,
// one log line, a deadline where the caller set none, and an answer where the
// code panicked. Locks are no business of it.
func Interceptor(log logrus.FieldLogger, deadline time.Duration) grpc.UnaryServerInterceptor {
	var requests atomic.Uint64
	var failures repeats
	recoverer := recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(
		func(_ context.Context, p any) error { return &op.PanicError{Value: p, Stack: debug.Stack()} }))
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		entry := log.WithFields(logrus.Fields{"request": requests.Add(1), "method": strings.TrimPrefix(info.FullMethod, "/")})
		subject := subjectOf(req)
		if subject != "" {
			entry = entry.WithField("subject", subject)
		}
		if l, ok := log.(interface{ IsLevelEnabled(logrus.Level) bool }); ok && l.IsLevelEnabled(logrus.DebugLevel) {
			entry.WithField("content", Redact(req)).Debug("request")
		}
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, deadline)
			defer cancel()
		}
		start := time.Now()
		resp, err := recoverer(ctx, req, info, handler)
		var p *op.PanicError
		if errors.As(err, &p) {
			entry = entry.WithField("stack", string(p.Stack))
		}
		err = toStatus(ctx, err)
		logEnd(entry.WithField("seconds", time.Since(start).Seconds()), &failures, info.FullMethod, subject, err)
		return resp, err
	}
}

// logEnd writes the one line of an RPC. Failures that only the caller can mend
// are no errors of the driver. What fails again and again in the same way is
// told with a count, ever more rarely; each time is in the debug log.
func logEnd(entry *logrus.Entry, failures *repeats, method, subject string, err error) {
	code := status.Code(err)
	entry = entry.WithField("code", code.String())
	call := method + " " + subject
	if code == codes.OK {
		if n := failures.succeeded(call); n > 0 {
			entry = entry.WithField("failures", n)
		}
		if changes(method) {
			entry.Info("done")
		} else {
			entry.Debug("done")
		}
		return
	}
	reason := status.Convert(err).Message()
	n := failures.failed(call, code, reason)
	if n > 1 {
		entry = entry.WithField("times", n)
	}
	entry = entry.WithField("reason", reason)
	switch {
	case !told(n):
		entry.Debug("failed again")
	case code == codes.Internal:
		entry.Error("failed")
	default:
		entry.Info("refused")
	}
}

// changes reports whether an RPC changes anything.
func changes(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, service := range []string{"Group", "Controller", "Node"} {
		name = strings.TrimPrefix(name, service)
	}
	for _, read := range []string{"Get", "List", "Validate", "Probe"} {
		if strings.HasPrefix(name, read) {
			return false
		}
	}
	return true
}

// subjectOf is what a request is about: the volume or snapshot, or the name
// it shall have.
func subjectOf(req any) string {
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		return printable(r.GetVolumeId())
	case interface{ GetSnapshotId() string }:
		return printable(r.GetSnapshotId())
	case interface{ GetGroupSnapshotId() string }:
		return printable(r.GetGroupSnapshotId())
	case interface{ GetName() string }:
		return printable(r.GetName())
	}
	return ""
}

// Redact renders a request without secrets, for the debug log.
func Redact(req any) string {
	m, ok := req.(proto.Message)
	if !ok {
		return fmt.Sprintf("%T", req)
	}
	return redact(m)
}
