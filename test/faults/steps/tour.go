// Package steps kills the daemon before and after each side effect of each RPC,
// and makes each side effect fail once and hang once. What a side effect is
// stands in pkg/step. After each of them the call is repeated: its answer, and
// everything that is left on the host, must be what they are when nothing
// happens.
//
// A tour is the whole life of a volume in which each call is disturbed at its
// k-th step; all tours together disturb each call at each step.
package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// World is a host that is storage host and node, with a daemon on it.
type World interface {
	Conn() *grpc.ClientConn
	NodeID() string
	// Dir is a folder in which volumes are staged and published.
	Dir() string
	// Plan has the steps counted from now on, and disturbed at the at-th one as
	// what says: one of the plans of pkg/step.
	Plan(what string, at int) error
	// End ends the plan. It returns the steps so far, and starts the daemon again
	// if it was killed.
	End(ctx context.Context) (Outcome, error)
	// Hit says whether the disturbance of the plan has begun.
	Hit() bool
	// Reconcile has the daemon look at everything, as it does from time to time.
	Reconcile(ctx context.Context) error
	// State is everything that volumes leave on the host.
	State() ([]string, error)
	// Write and Read are a workload's.
	Write(path string, block bool, data []byte) error
	Read(path string, block bool, size int) ([]byte, error)
}

// Outcome is what came of a plan.
type Outcome struct {
	// Steps are the side effects, in order.
	Steps []string
	// Hit says that the disturbance took place.
	Hit bool
}

// The disturbances that a tour can bring; the words are those of pkg/step.
const (
	Count      = "count"
	KillBefore = "kill-before"
	KillAfter  = "kill-after"
	Fail       = "fail"
	Hang       = "hang"
)

// Tour is one life.
type Tour struct {
	World World
	Use   Use
	// Disturb says what is done to a call, and at which of its steps; 0 leaves it
	// alone.
	Disturb func(call string) (what string, at int)
	// Brief leaves out the use of what was made of the volume.
	Brief bool
	// HangFor is how long the caller waits for a call that hangs.
	HangFor time.Duration
	// Patience bounds one call, and the repeating of one.
	Patience time.Duration
	// Say hears what is done.
	Say func(format string, args ...any)
}

// Report is what a tour saw.
type Report struct {
	// Answers and States are of each call when it was through.
	Answers []string
	States  [][]string
	// Steps are those of each call that has a name.
	Steps map[string][]string
	// Hits counts the disturbances that took place.
	Hits int
}

// Run makes the tour. Without a reference, it is what others are compared with.
func (t Tour) Run(ctx context.Context, reference *Report) (Report, error) {
	r := Report{Steps: map[string][]string{}}
	before, err := t.World.State()
	if err != nil {
		return r, err
	}
	for k, c := range newLife(t.World, t.Use).calls(t.Brief) {
		what := fmt.Sprintf("%s, call %d (%s)", t.Use.Name, k, c.name)
		answer, err := t.disturbed(ctx, c, &r)
		if err != nil {
			return r, fmt.Errorf("%s: %w", what, err)
		}
		state, err := t.state(ctx, c, reference, k)
		if err != nil {
			return r, err
		}
		r.Answers, r.States = append(r.Answers, answer), append(r.States, state)
		if reference != nil {
			if diff := cmp.Diff(reference.Answers[k], answer); diff != "" {
				return r, fmt.Errorf("%s: another answer:\n%s", what, diff)
			}
			if diff := cmp.Diff(reference.States[k], state); diff != "" {
				return r, fmt.Errorf("%s: something else is left:\n%s", what, diff)
			}
		}
		if c.then != nil {
			if err := c.then(ctx); err != nil {
				return r, fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	after, err := t.World.State()
	if err == nil && !slices.Equal(before, after) {
		err = fmt.Errorf("%s: the end is not as the beginning:\n%s", t.Use.Name, cmp.Diff(before, after))
	}
	return r, err
}

// state is what is left after the k-th call. What a deletion ends besides is
// tried again by the next reconcile only.
func (t Tour) state(ctx context.Context, c call, reference *Report, k int) ([]string, error) {
	state, err := t.World.State()
	if err != nil || reference == nil || slices.Equal(state, reference.States[k]) {
		return state, err
	}
	if c.reconciled {
		if err := t.World.Reconcile(ctx); err != nil {
			return nil, err
		}
	}
	// The kernel and udev do some of it soon.
	for pause := 10 * time.Millisecond; pause < 2*time.Second; pause *= 2 {
		if state, err = t.World.State(); err != nil || slices.Equal(state, reference.States[k]) {
			return state, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return state, ctx.Err()
		}
	}
	return state, nil
}

// disturbed makes one call, disturbed where the tour says so, and repeats it
// until it is through.
func (t Tour) disturbed(ctx context.Context, c call, r *Report) (string, error) {
	what, at := Count, 0
	named := c.name != "" && t.Use.Disturbs(c.name)
	if named {
		what, at = t.Disturb(c.name)
	}
	if err := t.World.Plan(what, at); err != nil {
		return "", err
	}
	first, leave := context.WithCancel(ctx)
	if what == Hang {
		go t.leaveWhenHung(first, leave)
	}
	answer, failed := t.once(first, c)
	leave()
	o, err := t.World.End(ctx)
	if err != nil {
		return "", fmt.Errorf("%s at step %d: %w", what, at, err)
	}
	if named {
		r.Steps[c.name] = o.Steps
	}
	switch {
	case !o.Hit && at > 0:
		return "", fmt.Errorf("%s: there is no step %d, but %q", what, at, o.Steps)
	case !o.Hit:
		return answer, failed
	}
	r.Hits++
	where := fmt.Sprintf("%s at step %d of %q", what, at, o.Steps)
	t.Say("%s %s: %s: %v", t.Use.Name, c.name, where, failed)
	if !allowed(what, status.Code(failed)) {
		return "", fmt.Errorf("%s: the answer is %w", where, failed)
	}
	if answer, err = t.repeat(ctx, c); err != nil {
		return "", fmt.Errorf("%s, then again: %w", where, err)
	}
	return answer, nil
}

// leaveWhenHung is a caller that gives a call up some time after it began to
// hang.
func (t Tour) leaveWhenHung(ctx context.Context, leave func()) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !t.World.Hit() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(t.HangFor)
	defer timer.Stop()
	select {
	case <-timer.C:
		leave()
	case <-ctx.Done():
	}
}

// repeat makes a call until nothing of an earlier one is in its way, as an
// orchestrator does.
func (t Tour) repeat(ctx context.Context, c call) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		answer, err := t.once(ctx, c)
		if status.Code(err) != codes.Aborted {
			return answer, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", err
		}
	}
}

func (t Tour) once(ctx context.Context, c call) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	m, err := c.do(ctx)
	if err != nil {
		return "", err
	}
	return render(m)
}

// allowed says which codes a call that was disturbed may answer. None of them
// makes an orchestrator believe that the volume, or its request, is at fault:
// it repeats the call.
func allowed(what string, code codes.Code) bool {
	switch what {
	case KillBefore, KillAfter:
		return true // nobody is left to answer
	case Fail:
		return code == codes.OK || code == codes.Unavailable || code == codes.Internal || code == codes.FailedPrecondition
	case Hang:
		return code == codes.OK || code == codes.DeadlineExceeded || code == codes.Canceled
	}
	return code == codes.OK
}

// What is another one in each life.
var (
	uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	hash = regexp.MustCompile(`[0-9a-f]{24,}`)
	when = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z`)
	hba  = regexp.MustCompile(`iblock_\d+`)
	temp = regexp.MustCompile(`/[a-z]+-\d+/`) // of os.MkdirTemp
)

// Plain leaves out of a text what is another one in each life.
func Plain(text string) string {
	text = uuid.ReplaceAllString(text, "UUID")
	text = hash.ReplaceAllString(text, "HASH")
	text = when.ReplaceAllString(text, "TIME")
	text = temp.ReplaceAllString(text, "/TEMP/")
	return hba.ReplaceAllString(text, "iblock_N")
}

func render(m proto.Message) (string, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	// protojson's blanks differ from build to build.
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return "", err
	}
	out, err := json.MarshalIndent(plain, "", " ")
	return Plain(string(out)), err
}
