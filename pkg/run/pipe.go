package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
)

// PipeError is a pair of children of which one failed, or both: the end of one
// is mostly the end of the other. Either may be nil; else it is an *Error, or
// wraps one.
type PipeError struct{ From, To error }

func (e *PipeError) Error() string {
	switch {
	case e.To == nil:
		return e.From.Error()
	case e.From == nil:
		return e.To.Error()
	}
	return fmt.Sprintf("%v; %v", e.From, e.To)
}

// Unwrap returns what there is of both.
func (e *PipeError) Unwrap() []error {
	var list []error
	for _, err := range []error{e.From, e.To} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// Pipe starts two children, the stdout of the first being the stdin of the
// second, and returns the stdout of the second once both have ended. It is what
// a shell's | is, without one: what flows between them does not pass through this
// process, both are in the list of what runs, and both end with ctx, each with
// its whole process group. When one ends early, the other learns it from the
// pipe, as SIGPIPE or as the end of its input: a second child must not take the
// end of its input for the end of the data. The first child's own Stdin is fed
// to it; the second's is not used.
//
// The error is a *PipeError.
func (r *Runner) Pipe(ctx context.Context, from, to Cmd) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, &PipeError{From: from.notStarted(err), To: to.notStarted(err)}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, &PipeError{From: from.notStarted(err), To: to.notStarted(err)}
	}
	running, kill := context.WithCancel(ctx)
	defer kill()

	var stdout bytes.Buffer
	second, err := r.start(running, to, read, &stdout)
	if err != nil {
		return nil, &PipeError{From: errors.Join(read.Close(), write.Close()), To: err}
	}
	first, err := r.start(running, from, from.input(), write)
	if err != nil {
		kill() // before it sees an empty input, and takes that for the data
		to := onlyOf(ctx, second.wait(running))
		return nil, &PipeError{From: errors.Join(err, read.Close(), write.Close()), To: to}
	}
	// Ends that are open here too would keep the pipe from ending.
	if err := errors.Join(read.Close(), write.Close()); err != nil {
		kill()
		return nil, &PipeError{From: errors.Join(err, first.wait(running)), To: second.wait(running)}
	}
	firstErr := make(chan error, 1)
	go func() { firstErr <- first.wait(ctx) }()
	e := &PipeError{To: second.wait(ctx)}
	if e.From = <-firstErr; e.From != nil || e.To != nil {
		return stdout.Bytes(), e
	}
	return stdout.Bytes(), nil
}

// onlyOf leaves out the error of a child that was killed while ctx goes on.
func onlyOf(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return nil
	}
	return err
}
