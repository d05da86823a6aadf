// Package fault names the ways in which an operation can fail, in the words
// of the driver's error table (docs/design.md). Lower layers make these
// errors; pkg/csi alone turns them into gRPC codes.
//
// It holds no gRPC and no protobuf: the domain can be used and tested without
// either.
package fault

import (
	"errors"
	"fmt"
)

// The kinds of failure. Test with errors.Is.
var (
	// Invalid: the request itself is wrong, whatever the state of the world.
	Invalid = errors.New("invalid argument")
	// NotFound: the volume, snapshot or node that was named does not exist.
	NotFound = errors.New("not found")
	// Exists: something of that name or at that path exists with other content.
	Exists = errors.New("already exists")
	// Range: the size asked for is impossible.
	Range = errors.New("out of range")
	// Exhausted: no space, quota or place is left.
	Exhausted = errors.New("resource exhausted")
	// Precondition: something must be done first, by the orchestrator or a person.
	Precondition = errors.New("failed precondition")
	// Busy: another operation holds the same volume; the same call may be repeated.
	Busy = errors.New("busy")
	// Aborted: the call cannot be continued as it was begun, such as a listing
	// with a token that is no longer known.
	Aborted = errors.New("aborted")
	// Unavailable: a pool, server, module or device does not answer; a repeat
	// may succeed.
	Unavailable = errors.New("unavailable")
)

// Error is a failure of a known kind. Its text says what was tried and what to
// do next; the kind is not part of the text.
type Error struct {
	Kind error
	Text string
	// Cause is what lay beneath, or nil. It is part of Text where the text was
	// made with %w.
	Cause error
}

// New returns an error of the kind. The format may hold one %w.
func New(kind error, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Text: wrapped.Error(), Cause: errors.Unwrap(wrapped)}
}

func (e *Error) Error() string { return e.Text }

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Kind returns the outermost kind of err, or nil where err has none.
func Kind(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return nil
}
