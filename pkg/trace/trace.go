// Package trace sends a span for each CSI call and for each child process to an
// OpenTelemetry collector. Nothing here waits for the collector: what it does not
// take in time is dropped. A span has ids, names of methods and tools, exit codes
// and masked command lines; no request and no secret.
package trace

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/run"
)

const (
	// sendTimeout bounds one attempt to send, with its repeats.
	sendTimeout = 10 * time.Second
	// maxLine is how many bytes of a command line a span has.
	maxLine = 1000
)

// Config is what a Tracer is made of.
type Config struct {
	// Endpoint is the collector's, for OTLP over gRPC: http://HOST:PORT, or https://.
	Endpoint string
	// Driver, Version and Node tell whose spans they are; Node may be empty.
	Driver, Version, Node string
	// Log hears when spans are lost, and when they are taken again.
	Log logrus.FieldLogger
}

// Tracer makes the spans of one process. A nil one makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	children trace.Tracer
}

// New returns a Tracer. It connects to nobody yet.
func New(ctx context.Context, c Config) (*Tracer, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(c.Endpoint), otlptracegrpc.WithTimeout(sendTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, err
	}
	who := []attribute.KeyValue{attribute.String("service.name", "tarn"), attribute.String("service.version", c.Version), attribute.String("tarn.driver", c.Driver)}
	if c.Node != "" {
		who = append(who, attribute.String("host.name", c.Node))
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(&teller{SpanExporter: exporter, log: c.Log}), sdk.WithResource(resource.NewSchemaless(who...)))
	return &Tracer{provider: provider, children: provider.Tracer("github.com/tarn-csi/tarn/pkg/run")}, nil
}

// Server makes a span of each call but Probe, which orchestrators repeat every few
// seconds. A caller's own trace is gone on with.
func (t *Tracer) Server() grpc.ServerOption {
	if t == nil {
		return grpc.EmptyServerOption{}
	}
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return path.Base(info.FullMethodName) != "Probe" })))
}

// Unary is the interceptor that gives a call's span the id that the call is about.
func (t *Tracer) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	span := trace.SpanFromContext(ctx)
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		span.SetAttributes(attribute.String("csi.volume_id", ident.Printable(r.GetVolumeId())))
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		span.SetAttributes(attribute.String("csi.snapshot_id", ident.Printable(r.GetSnapshotId())))
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		span.SetAttributes(attribute.String("csi.node_id", ident.Printable(r.GetNodeId())))
	}
	return handler(ctx, req)
}

// Child is the observer that makes a span of a child process, within that of the
// call that started it, which may be over.
func (t *Tracer) Child(ctx context.Context, c run.Child, err error) {
	if t == nil {
		return
	}
	line := c.Line
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	name := c.Tool
	if _, verb := c.Kind(); verb != "" && verb != run.Other {
		name += " " + verb
	}
	_, span := t.children.Start(ctx, name, trace.WithTimestamp(c.Since), trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(
			attribute.String("process.executable.name", c.Tool),
			attribute.String("process.command_line", line),
			attribute.Int("process.exit.code", run.ExitCode(err)),
		))
	if err != nil {
		span.SetStatus(codes.Error, how(err))
	}
	span.End()
}

// how a child failed, without what it wrote.
func how(err error) string {
	var e *run.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return "it failed"
}

// Close sends what is left, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// teller is an exporter that tells the log once that spans are lost, and once
// that they are taken again. Spans come to it one batch after the other.
type teller struct {
	sdk.SpanExporter
	log  logrus.FieldLogger
	lost int
}

func (t *teller) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil:
		if t.lost == 0 {
			t.log.WithError(err).Warn("the collector does not take the traces: they are lost until it does")
		}
		t.lost += len(spans)
	case t.lost > 0:
		t.log.WithField("lost", t.lost).Info("the collector takes the traces again")
		t.lost = 0
	}
	return nil // told here, and not on stderr by the SDK
}
