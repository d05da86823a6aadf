package volume

import (
	"errors"
	"fmt"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// describe gives an error of pkg/zfs its kind, and says what was tried.
func describe(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	tried := fmt.Sprintf(format, args...)
	switch {
	case fault.Kind(err) != nil:
		return err
	case errors.Is(err, zfs.ErrNotExist):
		return fault.New(fault.NotFound, "%s: %w", tried, err)
	case errors.Is(err, zfs.ErrNoKey):
		return fault.New(fault.Precondition, "%s: %w: load the key with `zfs load-key`", tried, err)
	case errors.Is(err, zfs.ErrNoSpace):
		return fault.New(fault.Exhausted, "%s: %w", tried, err)
	case errors.Is(err, zfs.ErrNoParent), errors.Is(err, zfs.ErrSuspended):
		return fault.New(fault.Unavailable, "%s: %w", tried, err)
	case errors.Is(err, zfs.ErrBadValue):
		return fault.New(fault.Invalid, "%s: %w", tried, err)
	}
	return fmt.Errorf("%s: %w", tried, err)
}

// ofParent is describe for a command about a pool's parent: when that does not
// exist, the pool is away, and nobody asked for something that is not there.
func ofParent(err error, format string, args ...any) error {
	if errors.Is(err, zfs.ErrNotExist) || errors.Is(err, zfs.ErrNoParent) {
		return fault.New(fault.Unavailable, "%s: %w: import the pool", fmt.Sprintf(format, args...), err)
	}
	return describe(err, format, args...)
}

// kindOr is the kind of an error, or another where it has none.
func kindOr(err, kind error) error {
	if k := fault.Kind(err); k != nil {
		return k
	}
	return kind
}
