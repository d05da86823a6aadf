package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Shared is one pool and one daemon for all tests of a package, as a host would
// have.
type Shared struct {
	Pool   Pool
	Daemon *Daemon
	// Tools is a folder that comes first in the daemon's PATH, for tools that a
	// test makes behave otherwise.
	Tools string
	// Before is what was there before the daemon.
	Before []string
}

// Run makes the pool and the daemon, runs the tests, and fails where anything
// of a volume is left. It returns the exit status.
func (s *Shared) Run(pool string, run func() int) int {
	code, err := s.runAll(pool, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, pool+":", err)
		code = max(code, 1)
	}
	return code
}

func (s *Shared) runAll(pool string, run func() int) (code int, err error) {
	// Short, since paths end up in fields of at most 128 bytes.
	dir, err := os.MkdirTemp("", pool+"-")
	if err != nil {
		return 1, err
	}
	ctx := context.Background()
	s.Tools = filepath.Join(dir, "tools")
	if err := os.Mkdir(s.Tools, 0o755); err != nil {
		return 1, err
	}
	s.Pool = Pool{Name: pool, Dir: dir}
	if err := s.Pool.Up(ctx); err != nil {
		return 1, err
	}
	if s.Before, err = State(s.Pool, dir); err != nil {
		return 1, err
	}
	s.Daemon = &Daemon{Dir: dir, Pool: "p=" + s.Pool.Parent(), Env: []string{"PATH=" + s.Tools + ":" + os.Getenv("PATH")},
		// No test counts what a timer does.
		Args: []string{"--reconcile-interval", "12h"}}
	if err := s.Daemon.Start(ctx); err != nil {
		return 1, fmt.Errorf("%w\n%s", err, s.Daemon.Log())
	}
	code = run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "--- the daemon's log\n%s---\n", s.Daemon.Log())
	}
	if err := s.Daemon.Stop(ctx); err != nil {
		return code, err
	}
	return code, errors.Join(NothingLeft(s.Pool, dir, s.Before), s.Pool.Down(ctx), RemoveDir(dir))
}
