package sanityv0

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// Check is one behaviour that a plugin must show.
type Check struct {
	// Name is topic/behaviour, and unique.
	Name string
	// Section is the part of the specification that asks for it.
	Section string

	needs need
	run   func(*C)
}

// need is what a check cannot do without. What is missing skips the check.
type need uint

const (
	needVolumes    need = 1 << iota // CREATE_DELETE_VOLUME
	needPublish                     // PUBLISH_UNPUBLISH_VOLUME
	needList                        // LIST_VOLUMES
	needCapacity                    // GET_CAPACITY
	needStage                       // STAGE_UNSTAGE_VOLUME
	needMultiNode                   // Options.MultiNode
	needOtherNode                   // Options.OtherNodeID
	needOtherParam                  // Options.OtherParameters
	needData                        // Host.Write and Host.Read
	needSecrets                     // a secret that is long enough to be searched for
	needTwoSockets                  // different endpoints for controller and node

	needNode = needVolumes | needPublish | needStage
)

// State is how a check ended.
type State string

// The states of a check.
const (
	Passed  State = "passed"
	Failed  State = "failed"
	Skipped State = "skipped"
)

// Result is the outcome of one check.
type Result struct {
	Check    Check
	State    State
	Messages []string
	Elapsed  time.Duration
}

// Report is the outcome of a run.
type Report struct {
	Results []Result
	// Stopped says why the checks after the last result were not run; empty if
	// all were.
	Stopped string
}

// OK reports whether every check ran, and none failed.
func (r *Report) OK() bool {
	return r.Stopped == "" && len(r.Names(Failed)) == 0
}

// Names lists the checks that ended in that state.
func (r *Report) Names(s State) []string {
	var names []string
	for _, res := range r.Results {
		if res.State == s {
			names = append(names, res.Check.Name)
		}
	}
	return names
}

// WriteTo writes one line a check, with its messages below, and a summary.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	for _, res := range r.Results {
		b.WriteString(res.String())
	}
	b.WriteString(r.Summary())
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// Summary is the last line of a report.
func (r *Report) Summary() string {
	s := fmt.Sprintf("%d passed, %d failed, %d skipped\n", len(r.Names(Passed)), len(r.Names(Failed)), len(r.Names(Skipped)))
	if r.Stopped != "" {
		s = "stopped: " + r.Stopped + "\n" + s
	}
	return s
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-7s %s [%s] (%.2fs)\n", r.State, r.Check.Name, r.Check.Section, r.Elapsed.Seconds())
	for _, m := range r.Messages {
		fmt.Fprintf(&b, "        %s\n", strings.ReplaceAll(m, "\n", "\n        "))
	}
	return b.String()
}

// C is what a check runs with: the suite, and a place for its findings.
type C struct {
	*suite
	state    State
	messages []string
}

// execute runs one check in a goroutine of its own, so that Fatalf can end it.
func (s *suite) execute(ck Check) Result {
	c := &C{suite: s, state: Passed}
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				c.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		c.skipUnless(ck.needs)
		ck.run(c)
	}()
	<-done
	if c.state == Failed {
		s.distrustVolumes()
	}
	return Result{Check: ck, State: c.state, Messages: c.messages, Elapsed: time.Since(start)}
}

// Errorf notes a finding; the check goes on and has failed.
func (c *C) Errorf(format string, args ...any) {
	c.state = Failed
	c.messages = append(c.messages, fmt.Sprintf(format, args...))
}

// Fatalf notes a finding and ends the check.
func (c *C) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf ends the check without a verdict.
func (c *C) Skipf(format string, args ...any) {
	if c.state != Failed {
		c.state = Skipped
	}
	c.messages = append(c.messages, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Logf notes something that is no finding.
func (c *C) Logf(format string, args ...any) {
	c.messages = append(c.messages, fmt.Sprintf(format, args...))
}

func (c *C) skipUnless(n need) {
	missing := func(bit need, have bool, what string) {
		if n&bit != 0 && !have {
			c.Skipf("needs %s", what)
		}
	}
	missing(needVolumes, c.offers.createDelete, "the capability CREATE_DELETE_VOLUME")
	missing(needPublish, c.offers.publish, "the capability PUBLISH_UNPUBLISH_VOLUME")
	missing(needList, c.offers.list, "the capability LIST_VOLUMES")
	missing(needCapacity, c.offers.capacity, "the capability GET_CAPACITY")
	missing(needStage, c.offers.stage, "the capability STAGE_UNSTAGE_VOLUME")
	missing(needMultiNode, c.o.MultiNode, "a plugin that supports volumes on several nodes (option multi-node)")
	missing(needOtherNode, c.o.OtherNodeID != "", "a second node (option other-node-id)")
	missing(needOtherParam, c.o.OtherParameters != nil, "a second set of parameters (option other-parameters)")
	missing(needData, c.o.Host.hasData(), "a host on which data can be written and read")
	missing(needSecrets, len(c.audit.secrets) > 0, "a secret of at least six bytes (option secrets)")
	missing(needTwoSockets, c.o.ControllerEndpoint != c.o.NodeEndpoint, "separate endpoints for controller and node")
}

// want notes a finding unless err has one of the codes. It reports whether it has.
func (c *C) want(err error, what string, any ...codes.Code) bool {
	if slices.Contains(any, status.Code(err)) {
		return true
	}
	c.Errorf("%s: got %s, want %s", what, describe(err), oneOf(any))
	return false
}

// must ends the check unless err is nil.
func (c *C) must(err error, what string) {
	if err != nil {
		c.Fatalf("%s: got %s, want OK", what, describe(err))
	}
}

func describe(err error) string {
	if err == nil {
		return "OK"
	}
	return fmt.Sprintf("%s (%.300s)", codeName(status.Code(err)), status.Convert(err).Message())
}

func oneOf(cs []codes.Code) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = codeName(c)
	}
	return strings.Join(names, " or ")
}

// codeName is a code as the specification writes it.
func codeName(c codes.Code) string {
	names := map[codes.Code]string{
		codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
		codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
		codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
		codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
		codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
		codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
	}
	if n := names[c]; n != "" {
		return n
	}
	return fmt.Sprintf("code %d", uint32(c))
}

// diffMessages is empty for equal messages, and else says how they differ.
func diffMessages(want, got proto.Message) string {
	return cmp.Diff(want, got, protocmp.Transform())
}

// inOrder ranges over a map by its sorted keys, so that each run is the same.
func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
