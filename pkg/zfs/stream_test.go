package zfs

import (
	"errors"
	"testing"

	"github.com/tarn-csi/tarn/pkg/run"
)

// The messages are OpenZFS 2.1.11's, word for word.
func TestClassifyStream(t *testing.T) {
	const (
		snapshot, name = "tank/csi/v@s", "tank/csi/.copy.c"
		nothing        = "cannot receive: failed to read from stream"
		pipe           = "" // the sender is ended by SIGPIPE and says nothing
	)
	for _, c := range []struct {
		send, receive string
		want          error
	}{
		{pipe, "cannot receive new filesystem stream: destination 'tank/csi/.copy.c' exists\nmust specify -F to overwrite it", ErrExists},
		{pipe, "cannot receive new filesystem stream: destination 'tank/csi/.copy.d' exists\nmust specify -F to overwrite it", nil},
		{pipe, "cannot open 'tank/csi': dataset does not exist\ncannot receive new filesystem stream: unable to restore to destination", ErrNoParent},
		{pipe, "cannot open 'tank': dataset does not exist\ncannot receive new filesystem stream: unable to restore to destination", nil},
		{pipe, "cannot receive new filesystem stream: destination tank/csi/.copy.c space quota exceeded.", ErrNoSpace},
		{pipe, "cannot receive resume stream: destination tank/csi/.copy.c space quota exceeded.", ErrNoSpace},
		{pipe, "cannot receive new filesystem stream: out of space", ErrNoSpace},
		{pipe, "cannot receive new filesystem stream: inherited key must be loaded", ErrNoKey},
		{pipe, "cannot receive resume stream: destination tank/csi/.copy.c contains partially-complete state from \"zfs receive -s\".", ErrBusy},
		{pipe, "cannot receive new filesystem stream: 'recordsize' must be power of 2 from 512B to 1M\ncannot receive new filesystem stream: invalid property value", ErrBadValue},
		{pipe, "cannot receive new filesystem stream: bad numeric value 'lots'\ncannot receive new filesystem stream: invalid property value", ErrBadValue},
		{pipe, "cannot receive: invalid property 'volsize'", ErrBadValue},
		{pipe, "cannot receive new filesystem stream: property 'refquota' does not apply to datasets of this type", ErrBadValue},
		{pipe, "property 'tarn:x' specified multiple times\nusage:\n\treceive", ErrBadValue},
		{pipe, "cannot receive: invalid name", ErrBadValue},
		{pipe, "cannot receive new filesystem stream: parent 'tank/csi' is not a filesystem", nil},
		{pipe, "cannot receive new filesystem stream: pool must be upgraded to receive this stream.", nil},
		{pipe, "cannot receive new filesystem stream: kernel modules must be upgraded to receive this stream.", nil},
		{pipe, "cannot receive new filesystem stream: checksum mismatch or incomplete stream.\nPartially received snapshot is saved.", nil},
		{"cannot open 'tank/csi/v@s': dataset does not exist", nothing, ErrNotExist},
		{"cannot open 'tank/csi/w@s': dataset does not exist", nothing, nil},
		{"warning: cannot send 'tank/csi/v@s': dataset key must be loaded", nothing, ErrNoKey},
		{"cannot resume send: 'tank/csi/v@s' used in the initial send no longer exists", nothing, ErrNotExist},
		{"cannot open 'tank/csi/v@s': pool I/O is currently suspended", nothing, ErrSuspended},
	} {
		pair := &run.PipeError{To: failed(c.receive)}
		if c.send != "" {
			pair.From = failed(c.send)
		}
		err := classifyStream(pair, snapshot, name)
		for _, cause := range []error{ErrNotExist, ErrExists, ErrNoParent, ErrBusy, ErrDependents, ErrNoSpace, ErrSuspended, ErrNoKey, ErrBadValue} {
			if errors.Is(err, cause) != (cause == c.want) {
				t.Errorf("%q, %q: the cause is %v: %t", c.send, c.receive, cause, errors.Is(err, cause))
			}
		}
		if err.Error() != pair.Error() {
			t.Errorf("the words are lost: %v", err)
		}
	}
	if err := classifyStream(nil, snapshot, name); err != nil {
		t.Error(err)
	}
}

func failed(text string) error {
	return &run.Error{Line: "zfs", Code: 1, Stderr: text, Err: errors.New("exit status 1")}
}

func TestTokenGUID(t *testing.T) {
	const out = "resume token contents:\nnvlist version: 0\n\tobject = 0x2\n\toffset = 0x12e0000\n\ttoguid = 0xf91570ffd2dd3584\n\ttoname = tank/csi/big@s\nfull send of tank/csi/big@s estimated size is 21.0M\n"
	if got := tokenGUID(out); got != "17948376134011663748" {
		t.Error(got)
	}
	if got := tokenGUID("cannot resume send: resume token is corrupt"); got != "" {
		t.Error(got)
	}
}
