// Command demo shows the driver's main job: as an orchestrator of the csi.v0
// generation it provisions, publishes, mounts, writes, reads back and deletes
// volumes over NFS and iSCSI, restarts the daemon in between, and makes sure
// that nothing is left. It prints one line a step and stops at the first
// failure.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tarn-csi/tarn/test/harness"
)

// limit bounds the whole demonstration, also on an emulated processor.
const limit = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := demonstrate(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
}

func demonstrate(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "tarn-demo-")
	if err != nil {
		return err
	}
	s := &show{start: time.Now()}
	pool := harness.Pool{Name: "tarndemo", Dir: dir}
	d := &harness.Daemon{Dir: dir, Pool: "demo=" + pool.Parent()}
	defer func() {
		d.Kill()
		if err != nil {
			fmt.Fprintf(os.Stderr, "--- the daemon's log\n%s---\n", d.Log())
		}
		// Not with ctx, which may have ended.
		err = errors.Join(err, pool.Down(context.Background()))
		if err == nil {
			err = harness.RemoveDir(dir)
		}
	}()
	if err := s.step("host", "make a pool on a file", func() (string, error) { return pool.Name, pool.Up(ctx) }); err != nil {
		return err
	}
	before, err := harness.State(pool, dir)
	if err != nil {
		return err
	}
	if err := s.step("host", "start tarn serve", func() (string, error) { return d.Endpoint(), d.Start(ctx) }); err != nil {
		return err
	}
	for _, v := range volumes() {
		w := walk{show: s, daemon: d, volume: v, dir: filepath.Join(dir, v.label)}
		if err := w.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", v.label, err)
		}
	}
	if err := s.step("host", "stop tarn serve", func() (string, error) { return "", d.Stop(ctx) }); err != nil {
		return err
	}
	if err := s.step("host", "nothing is left", func() (string, error) {
		return "no dataset, export, target, session, record or mount", harness.NothingLeft(pool, dir, before)
	}); err != nil {
		return err
	}
	s.summary()
	return nil
}

// show prints the steps.
type show struct {
	start time.Time
	steps int
}

func (s *show) step(subject, what string, do func() (string, error)) error {
	start := time.Now()
	detail, err := do()
	mark := "ok  "
	if err != nil {
		mark = "FAIL"
	}
	s.steps++
	fmt.Printf("%s %6.2fs  %-11s %-26s %s\n", mark, time.Since(start).Seconds(), subject, what, detail)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *show) summary() {
	fmt.Printf("\n%d steps in %.1f s: volumes were provisioned, exported, mounted, written, read back and deleted on real ZFS, NFS and iSCSI.\n",
		s.steps, time.Since(s.start).Seconds())
}
