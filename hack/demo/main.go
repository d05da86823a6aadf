// Command demo shows the driver's main job: as an orchestrator of the csi.v0
// generation it provisions, publishes, mounts, writes, reads back and deletes
// volumes over NFS and iSCSI, restarts the daemon in between, and makes sure
// that nothing is left. It prints one line a step and stops at the first
// failure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// limit bounds the whole demonstration, also on an emulated processor.
const limit = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := demonstrate(ctx); err != nil {
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
	d := &daemon{dir: dir}
	defer func() {
		d.kill()
		if err != nil {
			d.printLog()
		}
		if cleanErr := cleanUp(dir); err == nil {
			err = cleanErr
		}
	}()
	before, err := leftovers()
	if err != nil {
		return err
	}
	if err := s.step("host", "make a pool on a file", func() (string, error) {
		return poolName, hackZpool(ctx, "up", poolName, dir)
	}); err != nil {
		return err
	}
	if err := s.step("host", "start tarn serve", func() (string, error) { return d.endpoint(), d.start(ctx) }); err != nil {
		return err
	}
	for _, v := range volumes() {
		w := walk{show: s, daemon: d, volume: v, dir: filepath.Join(dir, v.label)}
		if err := w.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", v.label, err)
		}
	}
	if err := s.step("host", "stop tarn serve", func() (string, error) { return "", d.stop(ctx) }); err != nil {
		return err
	}
	if err := s.step("host", "nothing is left", func() (string, error) { return "no dataset, export, target, session or mount", nothingLeft(before) }); err != nil {
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
