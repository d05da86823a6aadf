package zfs

import (
	"errors"
	"fmt"
	"testing"

	gozfs "github.com/mistifyio/go-zfs/v4"

	"github.com/tarn-csi/tarn/pkg/run"
)

// The messages are OpenZFS 2.1.11's, word for word.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		text, name, other string
		want              error
	}{
		{"cannot open 'tank/csi/v': dataset does not exist", "tank/csi/v", "", ErrNotExist},
		{"cannot open 'tank/csi/v': dataset does not exist", "tank/csi/w", "", nil},
		{"cannot open 'tank/csi/v': dataset does not exist", "tank/csi/w", "tank/csi/v", nil},
		{"cannot open 'tank/csi/v': dataset does not exist", "tank/csi/v@s", "", ErrNoParent},
		{"cannot open 'tank/csi/v': pool I/O is currently suspended", "tank/csi/v@s", "", ErrSuspended},
		{"could not find any snapshots to destroy; check snapshot names.", "tank/csi/v@s", "", ErrNotExist},
		{"cannot create 'tank/csi/v': dataset already exists", "tank/csi/v", "", ErrExists},
		{"cannot rename 'tank/csi/v': dataset already exists", "tank/csi/v", "tank/csi/w", ErrExists},
		{"cannot create 'tank/none/v': parent does not exist", "tank/none/v", "", ErrNoParent},
		{"cannot create 'tank/none/v': parent does not exist", "tank/csi/v", "tank/none/v", ErrNoParent},
		{"cannot create 'nopool/v': no such pool 'nopool'", "nopool/v", "", ErrNoParent},
		{"cannot destroy 'tank/csi/z': dataset is busy", "tank/csi/z", "", ErrBusy},
		{"cannot unmount '/tank/csi/v': pool or dataset is busy", "tank/csi/v", "", ErrBusy},
		{"cannot destroy snapshot tank/csi/v@s: dataset is busy", "tank/csi/v@s", "", ErrBusy},
		{"cannot destroy 'tank/csi/v': filesystem has children\nuse '-r' to destroy the following datasets:\ntank/csi/v@s", "tank/csi/v", "", ErrDependents},
		{"cannot destroy 'tank/csi/z': volume has children\nuse '-r' to destroy the following datasets:\ntank/csi/z@s", "tank/csi/z", "", ErrDependents},
		{"cannot destroy 'tank/csi/v@s': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\ntank/csi/c", "tank/csi/v@s", "", ErrDependents},
		{"cannot create 'tank/csi/v': out of space", "tank/csi/v", "", ErrNoSpace},
		{"cannot set property for 'tank/csi/v': size is greater than available space", "tank/csi/v", "", ErrNoSpace},
		{"cannot open 'tank/csi/v': pool I/O is currently suspended", "tank/csi/v", "", ErrSuspended},
		{"cannot create 'tank/csi/v': encryption root's key is not loaded or provided", "tank/csi/v", "", ErrNoKey},
		{"cannot set property for 'tank/csi/v': size is less than current used or reserved space", "tank/csi/v", "", ErrBadValue},
		{"cannot set property for 'tank/csi/z': 'volsize' must be a multiple of volume block size (16K)", "tank/csi/z", "", ErrBadValue},
		{"cannot set property for 'tank/csi/v': property value too long", "tank/csi/v", "", ErrBadValue},
		{"cannot create 'tank/csi/v': bad numeric value '-1'", "tank/csi/v", "", ErrBadValue},
		{"cannot create 'tank/csi/v': invalid property 'foo'", "tank/csi/v", "", ErrBadValue},
		{"cannot create 'tank/csi/..': parent reference, '..' is found in name", "tank/csi/..", "", ErrBadValue},
		{"internal error: cannot create 'tank/csi/v': Argument list too long", "tank/csi/v", "", ErrBadValue},
		{"cannot create snapshots : this property can not be modified for snapshots", "", "tank/csi/v@s", ErrBadValue},
		{"cannot create snapshots : multiple snapshots of same fs not allowed\nno snapshots were created", "", "tank/csi/v@s", ErrBadValue},
		{"cannot create snapshots : out of space", "", "tank/csi/v@s", ErrNoSpace},
		{"cannot create snapshot 'tank/csi/v@s': out of space\nno snapshots were created", "", "tank/csi/v@s", ErrNoSpace},
		{"cannot create snapshot 'tank/csi/v@s': dataset is busy", "", "tank/csi/v@s", ErrBusy},
		{"internal error: cannot create snapshots : Argument list too long", "", "tank/csi/v@s", ErrBadValue},
		{"cannot open 'tank/csi/v@s': dataset does not exist", "tank/csi/v@s", "tank/csi/c", ErrNotExist},
		{"cannot create 'tank/csi/c': dataset already exists", "tank/csi/v@s", "tank/csi/c", ErrExists},
		{"cannot create 'tank/csi/c': 'volblocksize' is readonly", "tank/csi/v@s", "tank/csi/c", ErrBadValue},
		{"cannot open 'tank/csi/v': missing '@' delimiter in snapshot name", "tank/csi/v", "", ErrBadValue},
		{"property 'a:b' specified multiple times", "tank/csi/v", "", ErrBadValue},
		{"'refquota' property cannot be inherited\nuse 'zfs set refquota=none' to clear", "tank/csi/v", "", ErrBadValue},

		// A dataset may be called anything, and what is said of another proves
		// nothing about this one.
		{"cannot create 'tank/dataset is busy': I/O error", "tank/dataset is busy", "", nil},
		{"cannot create 'tank/csi/invalid': I/O error", "tank/csi/invalid", "", nil},
		{"cannot destroy 'tank/out of space': dataset is busy", "tank/out of space", "", ErrBusy},
		{"cannot open 'tank': dataset does not exist", "tank/csi/v", "", nil},
		{"cannot destroy 'tank/csi/v2': dataset is busy", "tank/csi/v", "", nil},
		{"cannot open 'tank/csi/v': dataset does not exist, or so", "tank/csi/v", "", nil},
		{"", "tank/csi/v", "", nil},
	} {
		for _, err := range []error{
			&run.Error{Line: "zfs", Code: 1, Stderr: c.text, Err: errors.New("exit status 1")},
			&gozfs.Error{Err: errors.New("exit status 1"), Debug: "zfs", Stderr: c.text + "\n"},
		} {
			got := classify(fmt.Errorf("wrapped: %w", err), c.name, c.other)
			for _, cause := range []error{ErrNotExist, ErrExists, ErrNoParent, ErrBusy, ErrDependents, ErrNoSpace, ErrSuspended, ErrNoKey, ErrBadValue} {
				if errors.Is(got, cause) != (cause == c.want) {
					t.Errorf("%T of %q about %s: %v is %t, want cause %v", err, c.text, c.name, cause, errors.Is(got, cause), c.want)
				}
			}
		}
	}
}

func TestClassifyKeepsTheCommandsOwnError(t *testing.T) {
	if classify(nil, "tank") != nil {
		t.Error("success became an error")
	}
	err := classify(&run.Error{Line: "zfs destroy tank/v", Code: 1, Stderr: "cannot destroy 'tank/v': dataset is busy", Err: errors.New("exit status 1")}, "tank/v")
	if run.ExitCode(err) != 1 || err.Error() != "zfs destroy tank/v: exit status 1: cannot destroy 'tank/v': dataset is busy" {
		t.Errorf("%d: %v", run.ExitCode(err), err)
	}
}
