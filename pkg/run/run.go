// Package run starts child processes, and is the only place that does, apart
// from go-zfs behind pkg/zfs. A child is an argument vector, never a shell
// line; it has a deadline, a process group of its own that is killed as a
// whole, the C locale, and an entry in a list of what runs now, so that a hung
// tool can be seen from outside. Secrets are masked before anything is logged
// or put into an error.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// maxStderrBytes bounds what of a tool's complaint is kept in an error.
const maxStderrBytes = 4 << 10

// pipeGrace is how long the pipes of a child that has ended may stay open in
// the hands of a process that it left behind.
const pipeGrace = 2 * time.Second

// Cmd describes one child.
type Cmd struct {
	// Tool is looked up in PATH.
	Tool string
	Args []string
	// Stdin is fed to the child; nil means the null device.
	Stdin []byte
	// Secrets are masked wherever they occur in Args or in the child's stderr.
	Secrets []string
	// ExtraFiles become the child's descriptors 3 and up.
	ExtraFiles []*os.File
}

// Error is a child that failed: not started, killed, or ended with a status
// other than zero.
type Error struct {
	// Line is the command line, with secrets masked.
	Line string
	// Code is the exit status, or -1 when the child was killed or not started.
	Code int
	// Stderr is the end of what the child complained, trimmed and masked.
	Stderr string
	// Err is the underlying error; a context's error when a deadline killed it.
	Err error
}

func (e *Error) Error() string {
	if e.Stderr != "" {
		return fmt.Sprintf("%s: %v: %s", e.Line, e.Err, e.Stderr)
	}
	return fmt.Sprintf("%s: %v", e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the exit status inside err: 0 for nil, -1 when err is no
// exit status.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return -1
}

// Stderr returns what the failed child of err complained, or "".
func Stderr(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Stderr
	}
	return ""
}

// Child is an entry of the list of running children.
type Child struct {
	Tool, Verb string
	Line       string
	Since      time.Time
}

// An Observer hears of each child that has ended, or could not be started. ctx is
// its caller's, and may have ended. It must not block.
type Observer func(ctx context.Context, c Child, err error)

// Runner starts children. It is safe for concurrent use.
type Runner struct {
	log       logrus.FieldLogger
	observers []Observer
	mu        sync.Mutex
	next      int
	live      map[int]Child
}

// New returns a Runner that logs each start and end at debug level, and tells
// the observers.
func New(log logrus.FieldLogger, observers ...Observer) *Runner {
	return &Runner{log: log, observers: observers, live: map[int]Child{}}
}

// Run starts the child and returns its stdout. When ctx ends, the whole process
// group is killed. Run returns only after the group has really ended, even when
// that takes longer than ctx: a process that SIGKILL cannot end still holds
// what it held, and the caller's locks must outlive it. A caller that cannot
// wait calls Run through pkg/op.
//
// The error is an *Error, whose Err is ctx's error when ctx ended first.
func (r *Runner) Run(ctx context.Context, c Cmd) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.notStarted(err)
	}
	var stdout bytes.Buffer
	k, err := r.start(ctx, c, c.input(), &stdout)
	if err == nil {
		err = k.wait(ctx)
		r.log.WithFields(logrus.Fields{"command": c.line(), "lines": bytes.Count(stdout.Bytes(), []byte("\n"))}).Debug("child said")
	}
	return stdout.Bytes(), err
}

// Track lists a child that something else starts (go-zfs) until the returned
// function is called with its outcome. ctx is its caller's.
func (r *Runner) Track(ctx context.Context, tool, verb, line string) func(error) {
	child := Child{Tool: tool, Verb: verb, Line: line, Since: time.Now()}
	r.mu.Lock()
	id := r.next
	r.next++
	r.live[id] = child
	r.mu.Unlock()
	r.log.WithField("command", line).Debug("child started")
	return func(err error) {
		r.mu.Lock()
		delete(r.live, id)
		r.mu.Unlock()
		entry := r.log.WithFields(logrus.Fields{"command": line, "seconds": time.Since(child.Since).Seconds()})
		if err != nil {
			entry = entry.WithError(err)
		}
		entry.Debug("child ended")
		for _, hears := range r.observers {
			hears(ctx, child, err)
		}
	}
}

// Live returns the children that run now, the oldest first.
func (r *Runner) Live() []Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Child, 0, len(r.live))
	for _, c := range r.live {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Child) int { return a.Since.Compare(b.Since) })
	return list
}

// environment is ours with the C locale: messages are told apart by their text.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	})
	return append(env, "LC_ALL=C")
}

// verb is the first argument that is no option: "create" of "zfs create -u".
func verb(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") && !strings.Contains(a, "/") {
			return a
		}
	}
	return ""
}
