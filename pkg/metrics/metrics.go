// Package metrics counts what the driver does and shows what it knows, for
// Prometheus. Its registry is its own. A scrape starts no child process and asks
// neither a pool nor a server: it shows what runs now, and what the last round
// of each loop has seen. The number of series is bounded by pools, protocols,
// tools and methods, and does not grow with the volumes.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/run"
)

// maxScrapes is how many scrapes are answered at once.
const maxScrapes = 4

// durations are the upper bounds of the buckets, in seconds: from a read of a
// property to operationTimeout.
var durations = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// Metrics are the metrics of one process.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	callTime *prometheus.HistogramVec
	children *prometheus.CounterVec
	childAge *prometheus.HistogramVec
}

// New returns the metrics of a driver of that version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tarn_rpcs_total", Help: "CSI calls that were answered."}, []string{"csi", "method", "code"}),
		callTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tarn_rpc_duration_seconds", Help: "How long CSI calls took.", Buckets: durations}, []string{"csi", "method"}),
		children: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tarn_children_total", Help: "Child processes that have ended."}, []string{"tool", "verb", "outcome"}),
		childAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tarn_child_duration_seconds", Help: "How long child processes ran.", Buckets: durations}, []string{"tool", "verb"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tarn_build_info", Help: "1; the labels tell the build.", ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()}})
	build.Set(1)
	m.registry.MustRegister(m.calls, m.callTime, m.children, m.childAge, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Show adds what the sources know to every scrape. It is called once.
func (m *Metrics) Show(s Sources) { m.registry.MustRegister(state{s}) }

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, DisableCompression: true})
}

// Gatherer is what a scrape reads, for tests.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Unary is the interceptor that counts calls; it stands in front of the one that
// makes errors to codes.
func (m *Metrics) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	version, method := call(info.FullMethod)
	m.calls.WithLabelValues(version, method, status.Code(err).String()).Inc()
	m.callTime.WithLabelValues(version, method).Observe(time.Since(start).Seconds())
	return resp, err
}

// call splits /csi.v1.Controller/CreateVolume into v1 and CreateVolume. Only what
// is registered arrives here, so there are as many as the specification has.
func call(fullMethod string) (version, method string) {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	for _, v := range []string{"v0", "v1"} {
		if strings.HasPrefix(service, "csi."+v+".") {
			return v, method
		}
	}
	return run.Other, method
}

// Child is the observer that counts child processes.
func (m *Metrics) Child(_ context.Context, c run.Child, err error) {
	tool, verb := c.Kind()
	m.children.WithLabelValues(tool, verb, outcome(err)).Inc()
	m.childAge.WithLabelValues(tool, verb).Observe(time.Since(c.Since).Seconds())
}

// outcome is how a child ended.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case run.ExitCode(err) > 0:
		return "failed"
	}
	return "killed" // or it could not be started
}
