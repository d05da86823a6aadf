//go:build faults

package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What a plan says is done at its step. Count does nothing.
const (
	Count      = "count"
	KillBefore = "kill-before"
	KillAfter  = "kill-after"
	Fail       = "fail"
	Hang       = "hang"
)

// ErrInjected is what a side effect fails with that was made to.
var ErrInjected = errors.New("a fault was injected")

// hangPoll is how often a side effect that hangs looks whether it still has to.
const hangPoll = 20 * time.Millisecond

// process stops its own process, or fails or delays its side effects, as the
// file `plan` in a folder says: an id, what to do, and at which step. With
// another id the steps are counted anew; without the file they are not counted.
// Each step that is counted is a line of the file `log`.
type process struct {
	dir string

	mu    sync.Mutex
	id    string
	count int
}

type plan struct {
	id   string
	what string
	at   int
}

// read returns no plan when there is none.
func (p *process) read() (plan, bool) {
	raw, err := os.ReadFile(filepath.Join(p.dir, "plan"))
	if err != nil {
		return plan{}, false
	}
	var now plan
	_, err = fmt.Sscan(string(raw), &now.id, &now.what, &now.at)
	return now, err == nil
}

func (p *process) begin(ctx context.Context, kind Kind, name string) (func(), error) {
	now, ok := p.read()
	if !ok {
		return func() {}, nil
	}
	n, err := p.next(now, kind, name)
	if err != nil {
		return nil, err
	}
	if n != now.at {
		return func() {}, nil
	}
	switch now.what {
	case KillBefore:
		kill()
	case KillAfter:
		return kill, nil
	case Fail:
		return nil, ErrInjected
	case Hang:
		return func() {}, p.hang(ctx, now.id)
	}
	return func() {}, nil
}

// next counts a step and logs it.
func (p *process) next(now plan, kind Kind, name string) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != now.id {
		p.id, p.count = now.id, 0
	}
	p.count++
	f, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", kind, name)
	return p.count, errors.Join(err, f.Close())
}

// hang returns when ctx ends, or when the plan is another one.
func (p *process) hang(ctx context.Context, id string) error {
	tick := time.NewTicker(hangPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if now, ok := p.read(); !ok || now.id != id {
				return nil
			}
		}
	}
}

// kill ends this process as a lack of memory does.
func kill() {
	_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
	select {} // the signal arrives before anything else is done
}
