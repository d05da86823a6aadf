package zfs

import (
	"errors"
	"fmt"
	"strings"

	gozfs "github.com/mistifyio/go-zfs/v4"

	"github.com/tarn-csi/tarn/pkg/run"
)

// The causes that callers tell apart. zfs(8) exits with 1 for all of them, so
// they are known by the message in the C locale.
var (
	ErrNotExist   = errors.New("dataset does not exist")
	ErrExists     = errors.New("dataset already exists")
	ErrNoParent   = errors.New("parent does not exist")
	ErrBusy       = errors.New("dataset is busy")
	ErrDependents = errors.New("dataset has dependents")
	ErrNoSpace    = errors.New("out of space")
	ErrSuspended  = errors.New("pool I/O is suspended")
	ErrBadValue   = errors.New("property value is refused")
)

// classify adds the cause to the error of a command that was about name. The
// dataset's own name must stand in a "does not exist": the absence of
// something else proves nothing about it.
func classify(name string, err error) error {
	if err == nil {
		return nil
	}
	text := run.Stderr(err)
	var lib *gozfs.Error
	if errors.As(err, &lib) {
		text = strings.TrimSpace(lib.Stderr)
		err = fmt.Errorf("%s: %s", lib.Debug, text)
	}
	quoted := "'" + name + "'"
	about := func(s string) bool { return strings.Contains(text, quoted) && strings.Contains(text, s) }
	var cause error
	switch {
	case strings.Contains(text, quoted+": dataset does not exist"),
		strings.Contains(text, "could not find any snapshots to destroy"):
		cause = ErrNotExist
	case about("dataset already exists"):
		cause = ErrExists
	case about("parent does not exist"), about("no such pool"):
		cause = ErrNoParent
	case about("is busy"):
		cause = ErrBusy
	case about("has children"), about("has dependent clones"), about("snapshot has dependent clones"):
		cause = ErrDependents
	case about("out of space"), about("size is greater than available space"):
		cause = ErrNoSpace
	case strings.Contains(text, "is currently suspended"):
		cause = ErrSuspended
	case about("must be"), about("invalid"), strings.Contains(text, "bad numeric value"), about("size is less than current used"):
		cause = ErrBadValue
	default:
		return err
	}
	return &causeError{cause: cause, err: err}
}

// causeError keeps the tool's words as its text and the cause for errors.Is.
type causeError struct{ cause, err error }

func (e *causeError) Error() string   { return e.err.Error() }
func (e *causeError) Unwrap() []error { return []error{e.cause, e.err} }
