package zfs

import (
	"errors"
	"strings"

	"github.com/tarn-csi/tarn/pkg/run"
)

// classifyStream adds the cause to the error of `zfs send` piped into
// `zfs receive`. When one of them fails, so does the other mostly, without a
// cause of its own: a broken pipe, or a stream that is not complete.
func classifyStream(err error, snapshot, name string) error {
	var pair *run.PipeError
	if !errors.As(err, &pair) {
		return err
	}
	cause := receiveCause(run.Stderr(pair.To), name)
	if cause == nil {
		cause = sendCause(run.Stderr(pair.From), snapshot)
	}
	if cause == nil {
		return err
	}
	return &causeError{cause: cause, err: err}
}

// receiveCause reads the messages of libzfs_sendrecv.c, zfs_receive_one. That
// kernel modules must be upgraded is said of an impossible name and of a token
// that is not the last one, that the pool must be upgraded where it lacks
// extensible_dataset: no cause that a caller could do something about.
func receiveCause(text, name string) error {
	const prefix = "cannot receive"
	if about, ok := after(text, parent(name)); ok && about == notThere {
		return ErrNoParent
	}
	if !strings.HasPrefix(text, prefix) {
		return causeOf(text, name, nil)
	}
	// "cannot receive new filesystem stream: what", or "resume stream", or neither.
	line, _, _ := strings.Cut(text, "\n")
	_, what, _ := strings.Cut(line, ": ")
	switch {
	case what == "destination '"+name+"' exists":
		return ErrExists
	case what == "destination "+name+" space quota exceeded.", what == "out of space":
		return ErrNoSpace
	case strings.HasSuffix(what, "key must be loaded"):
		return ErrNoKey
	case what == "dataset is busy", strings.HasPrefix(what, "destination "+name+" contains partially-complete state"):
		return ErrBusy
	case strings.HasSuffix(what, "is currently suspended"):
		return ErrSuspended
	case strings.HasPrefix(what, "'"), strings.HasPrefix(what, "property '"), strings.HasPrefix(what, "invalid property"),
		strings.HasPrefix(what, "bad numeric value"), what == "invalid name":
		return ErrBadValue
	}
	return nil
}

// sendCause reads what `zfs send` says about its snapshot.
func sendCause(text, snapshot string) error {
	about, ok := after(text, snapshot)
	switch {
	case strings.HasPrefix(text, "cannot resume send: ") && strings.HasSuffix(text, "no longer exists"):
		return ErrNotExist
	case !ok:
		return nil
	case about == notThere:
		return ErrNotExist
	case strings.HasSuffix(about, "key must be loaded"):
		return ErrNoKey
	case strings.HasSuffix(about, "is currently suspended"):
		return ErrSuspended
	}
	return nil
}
