package trace_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/trace"
)

// collected is a collector that keeps what it is sent.
type collected struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]*pb.Span // by name
	who   string
}

func (c *collected) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		c.who = resource.GetResource().String()
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans[s.GetName()] = s
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// serve serves on a loopback port until the test ends.
func serve(t *testing.T, register func(*grpc.Server), options ...grpc.ServerOption) (address string, s *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = grpc.NewServer(options...)
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), s
}

const secret = "s3cr3t-Sentinel-0123456789"

// node starts two children in each call, of which one fails and one knows a
// secret.
type node struct {
	csi.UnimplementedNodeServer
	csi.UnimplementedIdentityServer
	runner *run.Runner
}

func (n node) NodeUnstageVolume(ctx context.Context, _ *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	_, _ = n.runner.Run(ctx, run.Cmd{Tool: "true", Args: []string{"login", "-v", secret}, Secrets: []string{secret}})
	_, _ = n.runner.Run(ctx, run.Cmd{Tool: "sh", Args: []string{"-c", "echo " + secret + " >&2; sleep 0.02; exit 7"}, Secrets: []string{secret}})
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (n node) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// call makes one call to a driver whose spans go to an endpoint, and returns how
// long it took. The driver has ended by then, as it has before a tracer is closed:
// a call's span ends after its answer is sent.
func call(t *testing.T, tracer *trace.Tracer) time.Duration {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	n := node{runner: run.New(log, tracer.Child)}
	address, driver := serve(t, func(s *grpc.Server) { csi.RegisterNodeServer(s, n); csi.RegisterIdentityServer(s, n) },
		tracer.Server(), grpc.UnaryInterceptor(tracer.Unary))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin := time.Now()
	if _, err := csi.NewNodeClient(conn).NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "tank/v"}); err != nil {
		t.Fatal(err)
	}
	if _, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	driver.GracefulStop()
	return took
}

func closeIt(t *testing.T, tracer *trace.Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := tracer.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestACallAndItsChildrenAreOneTrace(t *testing.T) {
	c := &collected{spans: map[string]*pb.Span{}}
	address, _ := serve(t, func(s *grpc.Server) { collector.RegisterTraceServiceServer(s, c) })
	endpoint := "http://" + address
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: endpoint, Driver: "csi.tarn.example", Version: "v9", Node: "worker-1", Log: logrus.New()})
	if err != nil {
		t.Fatal(err)
	}
	call(t, tracer)
	closeIt(t, tracer)

	rpc := c.spans["csi.v1.Node/NodeUnstageVolume"]
	if rpc == nil || len(c.spans) != 3 {
		t.Fatalf("the spans are %v", c.spans)
	}
	if text := rpc.String(); !strings.Contains(text, "csi.volume_id") || !strings.Contains(text, "tank/v") {
		t.Errorf("the call's span is %s", text)
	}
	for name, want := range map[string]struct {
		line, status string
		code         int64
	}{"true": {"true login -v [masked]", "", 0}, "sh": {"sh -c echo [masked] >&2; sleep 0.02; exit 7", "exit status 7", 7}} {
		s := c.spans[name]
		if s == nil || !bytes.Equal(s.GetParentSpanId(), rpc.GetSpanId()) || !bytes.Equal(s.GetTraceId(), rpc.GetTraceId()) {
			t.Errorf("%q is %v, and no child of the call's", name, s)
			continue
		}
		got := map[string]string{}
		var code int64
		for _, a := range s.GetAttributes() {
			got[a.GetKey()] = a.GetValue().GetStringValue()
			if a.GetKey() == "process.exit.code" {
				code = a.GetValue().GetIntValue()
			}
		}
		if got["process.command_line"] != want.line || code != want.code || s.GetStatus().GetMessage() != want.status {
			t.Errorf("%q is %v", name, s)
		}
		if s.GetStartTimeUnixNano() < rpc.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > rpc.GetEndTimeUnixNano() {
			t.Errorf("%q is not within the call", name)
		}
	}
	if s := c.spans["sh"]; time.Duration(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano()) < 20*time.Millisecond {
		t.Errorf("a child of 20 ms took %v", s)
	}
	for name, s := range c.spans {
		if strings.Contains(s.String(), secret) {
			t.Errorf("%s shows the secret: %s", name, s)
		}
	}
	for _, part := range []string{"csi.tarn.example", "v9", "worker-1"} {
		if !strings.Contains(c.who, part) {
			t.Errorf("the spans are of %s", c.who)
		}
	}
}

func TestWithoutACollectorNothingIsMade(t *testing.T) {
	var tracer *trace.Tracer
	call(t, tracer)
	closeIt(t, tracer)
}

// A collector that is not there costs no call its time, is told once, and does
// not hold up the end.
func TestACollectorThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	_ = l.Close()
	var said bytes.Buffer
	log := logrus.New()
	log.SetOutput(&said)
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: endpoint, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if took := call(t, tracer); took > 5*time.Second {
		t.Errorf("the calls took %s", took)
	}
	closeIt(t, tracer)
	if n := strings.Count(said.String(), "does not take the traces"); n != 1 {
		t.Errorf("it was told %d times: %s", n, said.String())
	}
}
