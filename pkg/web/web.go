// Package web is what the driver shows over HTTP: metrics, two health checks, and
// a status page for people. It only shows, and only what is in memory: no request
// starts a child process, or asks a pool or a server. Whoever reaches it sees
// names of volumes and nodes, but no secret.
package web

import (
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Sources are what is shown. None of them may block. Those that are nil are not
// there.
type Sources struct {
	// Driver, Version, Mode and Node tell whose page it is; Node is empty on a host
	// that is none.
	Driver, Version, Mode, Node string
	// Metrics answers scrapes.
	Metrics http.Handler
	// Ready reports why the driver is not ready, Stuck which loop hangs.
	Ready, Stuck func() error
	// Round is what the storage host's last round saw, Tally the node's last sweep.
	Round func() volume.Round
	Tally func() node.Tally
	// Children are the child processes that run now, masked.
	Children func() []run.Child
	// Operations are what runs now, by the service that runs it: storage, node.
	Operations map[string]func() []op.Running
	// Log hears of a page that could not be written whole.
	Log logrus.FieldLogger
}

// Limits of a server for Handler.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = time.Minute
	maxHeader    = 16 << 10
	// MaxConnections is how many connections may be open at once.
	MaxConnections = 64
)

// Server returns a server with bounds for everything that a client may draw out.
func Server(s Sources) *http.Server {
	return &http.Server{
		Handler: Handler(s), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: log.New(complaints{s.Log}, "", 0),
	}
}

// complaints puts what net/http complains of into the daemon's log.
type complaints struct{ to logrus.FieldLogger }

func (c complaints) Write(line []byte) (int, error) {
	c.to.WithField("reason", text(strings.TrimSpace(string(line)))).Warn("an HTTP request could not be answered")
	return len(line), nil
}

// Handler serves /metrics, /healthz, /readyz and the page at /. Other methods than
// GET and HEAD are refused.
func Handler(s Sources) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.Metrics)
	mux.HandleFunc("GET /healthz", answer(s.Stuck))
	mux.HandleFunc("GET /readyz", answer(s.Ready))
	mux.HandleFunc("GET /{$}", s.page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// answer says ok, or what is wrong with status 503.
func answer(ask func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		text := "ok"
		if err := ask(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = err.Error()
		}
		_, _ = fmt.Fprintln(w, text) // who asked has gone
	}
}
