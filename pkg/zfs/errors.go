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
	ErrNoKey      = errors.New("encryption key is not loaded")
	ErrBadValue   = errors.New("property value is refused")
)

var errSeveral = errors.New("this is no name of one snapshot")

// notThere is what stands after the name of a dataset that does not exist.
const notThere = "dataset does not exist"

// classify adds the cause to the error of a command that was about name, and
// perhaps gave it another. Only what the tool says about these very names
// counts: the absence of something else proves nothing, and a dataset may be
// called "out of space".
func classify(err error, name string, others ...string) error {
	if err == nil {
		return nil
	}
	text := run.Stderr(err)
	var lib *gozfs.Error
	if errors.As(err, &lib) {
		text = strings.TrimSpace(lib.Stderr)
		err = fmt.Errorf("%s: %w: %s", lib.Debug, lib.Err, text)
	}
	cause := causeOf(text, name, others)
	if cause == nil {
		return err
	}
	return &causeError{cause: cause, err: err}
}

// causeOf reads the messages of libzfs_util.c (zfs_standard_error_fmt) and of
// the verbs in libzfs_dataset.c.
func causeOf(text, name string, others []string) error {
	switch {
	// The unmount that comes before a destroy names the mount point.
	case strings.HasPrefix(text, "cannot unmount '") && strings.HasSuffix(text, " is busy"):
		return ErrBusy
	case strings.HasPrefix(text, "could not find any snapshots to destroy"):
		return ErrNotExist
	// set(8) and inherit(8) name the property alone.
	case strings.HasPrefix(text, "property '") && strings.Contains(text, "specified multiple times"),
		strings.Contains(text, "property cannot be inherited"), strings.HasPrefix(text, "invalid property '"):
		return ErrBadValue
	// libzfs aborts on a value that does not fit into its buffer.
	case strings.HasPrefix(text, "internal error: ") && strings.HasSuffix(text, "Argument list too long"):
		return ErrBadValue
	}
	// `zfs snapshot` names nothing where it speaks of all that were to be taken.
	if about, ok := strings.CutPrefix(text, "cannot create snapshots : "); ok {
		return causeIn(about)
	}
	about, ok := after(text, name)
	if ok && about == notThere {
		return ErrNotExist
	}
	// The destroy of a snapshot opens its dataset first.
	if of, _, isSnapshot := strings.Cut(name, "@"); isSnapshot {
		switch about, _ := after(text, of); {
		case about == notThere:
			return ErrNoParent
		case strings.HasSuffix(about, "is currently suspended"):
			return ErrSuspended
		}
	}
	for _, other := range others {
		if !ok {
			about, ok = after(text, other)
		}
	}
	if !ok {
		return nil
	}
	return causeIn(about)
}

// causeIn reads what is said about the dataset.
func causeIn(about string) error {
	for _, c := range causes {
		for _, word := range c.words {
			if strings.Contains(about, word) {
				return c.cause
			}
		}
	}
	return nil
}

// causes are what can stand after a dataset's name, the certain ones first.
var causes = []struct {
	cause error
	words []string
}{
	{ErrExists, []string{"dataset already exists"}},
	{ErrNoParent, []string{"parent does not exist", "no such pool"}},
	{ErrDependents, []string{"has children", "has dependent clones"}},
	{ErrBusy, []string{"is busy"}},
	{ErrNoSpace, []string{"out of space", "size is greater than available space"}},
	{ErrSuspended, []string{"is currently suspended"}},
	{ErrNoKey, []string{"key is not loaded"}},
	{ErrBadValue, []string{
		"must be", "invalid ", "bad numeric value", "size is less than current used", "too long", "cannot be zero",
		"does not apply to datasets of this type", "is readonly", "delimiter", "slash in name", "reference, '",
		"cannot be a descendant", "can not be modified", "only allowed on volumes", "target pools differ",
		"multiple snapshots of same fs",
	}},
}

// after returns what a message says after a quoted name, which a destroyed
// snapshot's is not, to the end of its line.
func after(text, name string) (string, bool) {
	for _, mark := range []string{"'" + name + "': ", " snapshot " + name + ": "} {
		if _, rest, ok := strings.Cut(text, mark); ok {
			line, _, _ := strings.Cut(rest, "\n")
			return line, true
		}
	}
	return "", false
}

// recast gives an error another cause.
func recast(err, cause error) error {
	var c *causeError
	if errors.As(err, &c) {
		err = c.err
	}
	return &causeError{cause: cause, err: err}
}

// causeError keeps the tool's words as its text and the cause for errors.Is.
type causeError struct{ cause, err error }

func (e *causeError) Error() string   { return e.err.Error() }
func (e *causeError) Unwrap() []error { return []error{e.cause, e.err} }
