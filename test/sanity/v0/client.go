package sanityv0

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// dial connects to an endpoint. Every call on the connection is observed by the
// audit and the ledger.
func (s *suite) dial(endpoint string) (*grpc.ClientConn, error) {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(s.intercept),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A plugin that is restarted in a pause is found again quickly.
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err == nil {
		s.conns = append(s.conns, conn)
	}
	return conn, err
}

// once marks calls whose answer is wanted as it is, ABORTED included.
type onceKey struct{}

func once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// intercept bounds each call, observes it, and repeats one that is answered
// with ABORTED, as an orchestrator does: the operation that is pending may be
// the plugin's own.
func (s *suite) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	in, out := req.(proto.Message), reply.(proto.Message)
	asIs := ctx.Value(onceKey{}) != nil
	giveUp := time.Now().Add(s.o.RetryFor)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		began := time.Now()
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
			defer cancel()
			return invoke(ctx, method, req, reply, cc, opts...)
		}()
		s.audit.observe(method, out, err)
		s.ledger.observe(in, out, err)
		if s.o.Log != nil {
			s.o.Log("%s %s (%.3fs)", method, describe(err), time.Since(began).Seconds())
		}
		if status.Code(err) != codes.Aborted || asIs || time.Now().After(giveUp) {
			return err
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

// sleep waits; it reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
