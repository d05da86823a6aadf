// Package check looks at a host as a person would who wants to know why a
// volume cannot be served or mounted: what is needed, what is there, and what
// to do. It reads, and changes nothing; it needs no daemon and does not mind
// one that runs. Each look is bounded: what hangs is a finding like any other.
package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Status is how a finding is judged.
type Status string

// The statuses.
const (
	OK   Status = "OK"
	Warn Status = "WARN"
	Fail Status = "FAIL"
)

// Finding is one line of the table. Its fields in JSON are part of the command's
// interface.
type Finding struct {
	// Name is what was looked at, such as "pool tank".
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what is there.
	Found string `json:"found"`
	// Advice is what to do about it; empty where all is well.
	Advice string `json:"advice"`
}

// The bounds of one look, and of one question to a child or a peer in it. A
// child that not even SIGKILL ends is left behind after the grace.
const (
	lookTimeout = 30 * time.Second
	askTimeout  = 10 * time.Second
	lookGrace   = 5 * time.Second
	dialTimeout = 3 * time.Second
)

// settleTime is how long a publication may take from its property to its export.
// An export that changes waits for the next second of the kernel's clock.
const settleTime = 2 * time.Second

// Runner starts children; *run.Runner is one.
type Runner = zfs.Runner

// Checker looks at this host.
type Checker struct {
	cfg  config.Config
	run  Runner
	host host

	// Where a test puts another world.
	lookPath  func(tool string) (string, error)
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	addresses func() ([]netip.Addr, error)
	clock     func() (clockState, error)
	euid      func() int
	// exported reads the kernel's table of one protocol; nil is the real one.
	exported map[string]looker

	patience, grace, settle time.Duration
}

// looker is the part of an export.Exporter that only reads.
type looker interface {
	Look(ctx context.Context, uuid string) (export.Status, bool, error)
}

// New returns a Checker for what the configuration needs.
func New(c config.Config, r Runner) *Checker {
	return &Checker{
		cfg: c, run: r, host: host{root: "/"},
		lookPath:  exec.LookPath,
		dial:      (&net.Dialer{Timeout: dialTimeout}).DialContext,
		addresses: interfaceAddresses,
		clock:     kernelClock,
		euid:      os.Geteuid,
		patience:  lookTimeout, grace: lookGrace, settle: settleTime,
	}
}

// look is one check. It adds what it finds, and nothing after ctx has ended but
// that.
type look struct {
	name string
	do   func(ctx context.Context, add func(...Finding))
}

// Run makes every check that the configuration asks for, all at once, and
// returns the findings in the order of the table.
func (c *Checker) Run(ctx context.Context) []Finding {
	looks := c.looks()
	found := make([][]Finding, len(looks))
	var all sync.WaitGroup
	for i, l := range looks {
		all.Go(func() { found[i] = c.bounded(ctx, l) })
	}
	all.Wait()
	var list []Finding
	for _, f := range found {
		list = append(list, f...)
	}
	return list
}

// bounded returns what a look has found in its time. One that does not end is
// left, and said to have failed.
func (c *Checker) bounded(ctx context.Context, l look) []Finding {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	began := time.Now()
	var mu sync.Mutex
	var list []Finding
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.do(ctx, func(f ...Finding) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, f...)
		})
	}()
	select {
	case <-done:
		return list
	case <-ctx.Done():
	}
	timer := time.NewTimer(c.grace)
	defer timer.Stop()
	select {
	case <-done:
		return list
	case <-timer.C:
	}
	mu.Lock()
	defer mu.Unlock()
	return append(list[:len(list):len(list)], fail(l.name, "see `dmesg` for what hangs", "no answer in %s", time.Since(began).Round(time.Second)))
}

// Worst is the worst status of a list.
func Worst(list []Finding) Status {
	worst := OK
	for _, f := range list {
		if f.Status == Fail || f.Status == Warn && worst == OK {
			worst = f.Status
		}
	}
	return worst
}

func ok(name, format string, args ...any) Finding {
	return Finding{Name: name, Status: OK, Found: fmt.Sprintf(format, args...)}
}

func warn(name, advice, format string, args ...any) Finding {
	return Finding{Name: name, Status: Warn, Found: fmt.Sprintf(format, args...), Advice: advice}
}

func fail(name, advice, format string, args ...any) Finding {
	return Finding{Name: name, Status: Fail, Found: fmt.Sprintf(format, args...), Advice: advice}
}
