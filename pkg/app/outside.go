package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/metrics"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/trace"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/web"
)

// outside is what is seen of the daemon from outside: it grows with the parts
// that the mode has.
type outside struct {
	metrics *metrics.Metrics
	pages   web.Sources
	loops   []func() error // each reports that it hangs
}

func newOutside(c config.Config, log logrus.FieldLogger) *outside {
	o := &outside{metrics: metrics.New(Version)}
	o.pages = web.Sources{
		Driver: c.DriverName, Version: Version, Mode: c.Mode, Metrics: o.metrics.Handler(),
		Operations: map[string]func() []op.Running{}, Stuck: o.stuck, Log: log,
	}
	if c.Mode != config.Controller {
		o.pages.Node = c.NodeName
	}
	return o
}

func (o *outside) storage(s *volume.Service) {
	o.pages.Round = s.Last
	o.pages.Operations["storage"] = s.Operations
	o.loops = append(o.loops, s.Stuck)
}

func (o *outside) node(s *node.Service, h *health) {
	o.pages.Tally = s.Tally
	o.pages.Operations["node"] = s.Operations.Running
	o.loops = append(o.loops, s.Stuck, h.pulse.Stuck)
}

// stuck names every loop that hangs.
func (o *outside) stuck() error {
	var all []error
	for _, stuck := range o.loops {
		all = append(all, stuck())
	}
	return errors.Join(all...)
}

// server serves all of it, once every part is there.
func (o *outside) server(ready func() error) *http.Server {
	o.pages.Ready = ready
	o.metrics.Show(metrics.Sources{
		Children: o.pages.Children, Operations: o.pages.Operations, Round: o.pages.Round, Tally: o.pages.Tally,
		Ready: ready, Stuck: o.stuck,
	})
	return web.Server(o.pages)
}

// lastSpans is how long the end waits for a collector.
const lastSpans = 5 * time.Second

// newTracer returns nil, which makes no spans, where no collector is configured.
func newTracer(ctx context.Context, c config.Config, log logrus.FieldLogger) (*trace.Tracer, error) {
	if c.OTLPEndpoint == "" {
		return nil, nil
	}
	return trace.New(ctx, trace.Config{Endpoint: c.OTLPEndpoint, Driver: c.DriverName, Version: Version, Node: c.NodeName, Log: log})
}

func closeTracer(t *trace.Tracer, log logrus.FieldLogger) {
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.WithError(err).Warn("the last traces were not sent")
	}
}
