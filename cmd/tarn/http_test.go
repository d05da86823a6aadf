package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

var pagesAt = regexp.MustCompile(`address="?(127\.0\.0\.1:[0-9]+)"? *`)

// address is where a process serves its pages.
func (p *process) address() string {
	p.Helper()
	var at string
	p.eventually(func() bool {
		m := pagesAt.FindStringSubmatch(p.log.String())
		if m != nil {
			at = m[1]
		}
		return m != nil
	})
	return at
}

func (p *process) get(path string) (int, string) {
	p.Helper()
	r, err := http.Get("http://" + p.address() + path)
	if err != nil {
		p.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestTheDaemonIsSeenFromOutside(t *testing.T) {
	p := start(t, "--http-address=127.0.0.1:0")
	// It may get ready between the two questions.
	p.eventually(func() bool {
		probe, err := csi.NewIdentityClient(p.conn).Probe(t.Context(), &csi.ProbeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		code, _ := p.get("/readyz")
		return probe.GetReady().GetValue() == (code == http.StatusOK)
	})
	if code, text := p.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d, %s", code, text)
	}
	if code, text := p.get("/"); code != http.StatusOK || !strings.Contains(text, "node worker-1") {
		t.Errorf("/: %d, %s", code, text)
	}
	code, text := p.get("/metrics")
	for _, part := range []string{`tarn_rpcs_total{code="OK",csi="v1",method="Probe"} `, `tarn_build_info{`, `tarn_operations_running{service="node"} 0`, "tarn_sweep_rounds_total"} {
		if code != http.StatusOK || !strings.Contains(text, part) {
			t.Errorf("/metrics has no %s (%d)", part, code)
		}
	}

	// Another process cannot have the address, and says so at once.
	out, err := command(t, "serve", "--mode=node", "--protocols=nfs", "--node-name=w", "--node-address=192.0.2.21", "--endpoint="+p.dir+"/other.sock",
		"--state-dir="+p.dir+"/other", "--run-dir="+p.dir+"/other", "--http-address="+p.address()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another process listens on "+p.address()) {
		t.Errorf("a second process: %v, %s", err, out)
	}

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestNothingIsServedOverHTTPUnlessTold(t *testing.T) {
	p := start(t)
	if strings.Contains(p.log.String(), "status page") {
		t.Error("pages are served")
	}
}

// A collector that is not there is told in the log, and holds up nothing.
func TestTracesThatNobodyTakes(t *testing.T) {
	p := start(t, "--otlp-endpoint=http://127.0.0.1:1")
	if _, err := csi.NewNodeClient(p.conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(p.log.String(), "does not take the traces") {
		t.Error("the log does not say that spans are lost")
	}
}
