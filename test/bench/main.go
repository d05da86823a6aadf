// Command bench measures the RPCs of the storage host beside the same work as
// bare commands, in the same run, and prints the ratio. It runs in a guest, or
// on a host with ZFS and the servers, as root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tarn-csi/tarn/test/harness"
)

// row is one line of the result; times are in milliseconds.
type row struct {
	Op       string  `json:"op"`
	Protocol string  `json:"protocol"`
	Callers  int     `json:"callers"`
	Volumes  int     `json:"volumes"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	BareP50  float64 `json:"bare_p50_ms"`
	Ratio    float64 `json:"ratio"`
	Calls    int     `json:"calls"`
}

func (r row) print() {
	fmt.Printf("%-10s %-6s %7d %7d %9.0f %9.0f %9.0f %6.2f\n", r.Op, r.Protocol, r.Callers, r.Volumes, r.P50, r.P99, r.BareP50, r.Ratio)
}

func printHead() {
	fmt.Printf("%-10s %-6s %7s %7s %9s %9s %9s %6s\n", "op", "proto", "callers", "volumes", "p50 ms", "p99 ms", "bare p50", "ratio")
}

type config struct {
	volumes, callers []int
	protocols        []string
	calls, restore   int
	out              string
}

func main() {
	var c config
	volumes := flag.String("volumes", "10,2000", "how many volumes the pool holds, ascending")
	callers := flag.String("callers", "1,16", "how many callers there are at once")
	protocols := flag.String("protocols", "nfs,iscsi", "which protocols are measured")
	flag.IntVar(&c.calls, "calls", 32, "calls of one kind in one cell")
	flag.IntVar(&c.restore, "restore", 1000, "how many published volumes a starting daemon brings back; 0: not measured")
	flag.StringVar(&c.out, "out", "build/bench.json", "where the result goes")
	flag.Parse()
	var err error
	if c.volumes, err = numbers(*volumes); err == nil {
		c.callers, err = numbers(*callers)
	}
	c.protocols = strings.Split(*protocols, ",")
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, c)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func numbers(list string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no list of numbers above zero", list)
		}
		all = append(all, n)
	}
	return all, nil
}

func run(ctx context.Context, c config) error {
	printHead()
	var rows []row
	if c.restore > 0 {
		if err := inPool(ctx, c, func(b *bench, daemon *harness.Daemon) error {
			r, err := b.restore(ctx, daemon)
			rows = append(rows, r)
			return err
		}); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		rows[0].print()
	}
	if err := inPool(ctx, c, func(b *bench, _ *harness.Daemon) error {
		cells, err := b.all(ctx)
		rows = append(rows, cells...)
		return err
	}); err != nil {
		return err
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(c.out), 0o755), os.WriteFile(c.out, append(text, '\n'), 0o644))
}

// inPool measures with a daemon on a pool of its own.
func inPool(ctx context.Context, c config, measure func(b *bench, daemon *harness.Daemon) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	pool := harness.Pool{Name: "bench", Dir: dir}
	daemon := &harness.Daemon{Dir: dir, Pool: "p=" + pool.Parent(), Args: []string{"--log-level", "warn"}}
	defer func() {
		daemon.Kill()
		if err != nil {
			fmt.Fprintf(os.Stderr, "--- the daemon's log\n%s---\n", daemon.Log())
		}
		ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
		defer cancel()
		err = errors.Join(err, whileBusy(ctx, func() error { return pool.Down(ctx) }), harness.RemoveDir(dir))
	}()
	if err := pool.Up(ctx); err != nil {
		return err
	}
	if err := daemon.Start(ctx); err != nil {
		return err
	}
	return measure(&bench{config: c, dir: dir, parent: pool.Parent(), tarn: newTarn(daemon.Conn())}, daemon)
}

// bench runs the cells.
type bench struct {
	config
	dir, parent string
	tarn        *tarn
	filled      int
	names       int
}

func (b *bench) all(ctx context.Context) ([]row, error) {
	var rows []row
	for _, volumes := range b.volumes {
		if err := b.fill(ctx, volumes); err != nil {
			return nil, err
		}
		for _, protocol := range b.protocols {
			for _, callers := range b.callers {
				cell, err := b.cell(ctx, protocol, callers)
				if err != nil {
					return nil, fmt.Errorf("%s, %d callers, %d volumes: %w", protocol, callers, volumes, err)
				}
				for _, r := range cell {
					r.Protocol, r.Callers, r.Volumes = protocol, callers, volumes
					r.print()
					rows = append(rows, r)
				}
			}
		}
	}
	return rows, nil
}

// fill makes the pool hold that many volumes, which nobody measures.
func (b *bench) fill(ctx context.Context, volumes int) error {
	start := time.Now()
	more := volumes - b.filled
	first := b.filled
	b.filled = volumes
	_, err := inParallel(ctx, more, 16, func(ctx context.Context, i int) error {
		return b.tarn.create(ctx, "nfs", fmt.Sprintf("fill-%d", first+i))
	})
	fmt.Printf("%d volumes more in %.0f s\n", more, time.Since(start).Seconds())
	return err
}

// cell measures every operation, the driver and the bare commands in turn.
func (b *bench) cell(ctx context.Context, protocol string, callers int) ([]row, error) {
	b.names++
	rpc := b.tarn.steps(protocol, fmt.Sprintf("t%d", b.names))
	bare, err := newBare(b.dir, b.parent, protocol, fmt.Sprintf("b%d", b.names))
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, step := range rpc {
		ours, err := inParallel(ctx, b.calls, callers, step.do)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.op, err)
		}
		theirs, err := inParallel(ctx, b.calls, callers, bare.steps()[i].do)
		if err != nil {
			return nil, fmt.Errorf("bare %s: %w", step.op, err)
		}
		if step.op == "" {
			continue // it takes away what another left
		}
		p50, bareP50 := percentile(ours, 50), percentile(theirs, 50)
		rows = append(rows, row{Op: step.op, P50: p50, P99: percentile(ours, 99), BareP50: bareP50, Ratio: p50 / bareP50, Calls: b.calls})
	}
	return rows, nil
}
