package zfs

import (
	"context"
	"errors"
	"strconv"
)

// Clone makes s.Name from a snapshot of the same pool, a zvol when
// s.VolumeBytes is above zero, which then has that size; it must be a multiple of
// the volblocksize, and nothing keeps it from being less than the snapshot's.
// Thin and Properties are as for Create; volblocksize comes from the snapshot and
// cannot be given.
//
// A clone that gets mounted makes `zfs clone` run exportfs -ra, and so does one
// with mountpoint=none. OpenZFS 2.1 has no `clone -u`, so a filesystem is made
// with canmount=noauto (which Properties cannot hold then): where it is to be
// mounted at boot, its caller sets canmount=on, which mounts nothing.
//
// ErrExists, ErrNotExist (the snapshot), ErrNoParent, ErrNoSpace, ErrBadValue.
// When a value is refused, nothing exists. For the refreservation of a zvol that
// is the work of a second command, since the kernel gives up on removing the
// clone when udev looks at it: a process that is killed between them leaves one
// that lacks its reservation and nothing else.
func (c *Client) Clone(ctx context.Context, snapshot string, s Spec) error {
	args := []string{"clone"}
	if s.VolumeBytes > 0 {
		args = append(args, "-o", "volsize="+strconv.FormatInt(s.VolumeBytes, 10))
		if !s.Thin && !s.has("refreservation") {
			args = append(args, "-o", "refreservation=auto")
		}
	} else {
		args = append(args, "-o", "canmount=noauto")
	}
	for _, p := range s.Properties {
		args = append(args, "-o", p.Name+"="+p.Value)
	}
	_, err := c.zfs(ctx, append(args, snapshot, s.Name), snapshot, s.Name)
	if s.VolumeBytes > 0 && errors.Is(err, ErrNoSpace) {
		err = errors.Join(err, c.removeRefused(ctx, snapshot, s.Name))
	}
	return err
}

// removeRefused removes the clone whose reservation was refused, if it is there.
func (c *Client) removeRefused(ctx context.Context, snapshot, name string) error {
	d, err := c.Get(ctx, name)
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if origin, _ := d.Value("origin"); origin != snapshot {
		return nil
	}
	return c.destroyIdle(ctx, name)
}

func (s Spec) has(property string) bool {
	for _, p := range s.Properties {
		if p.Name == property {
			return true
		}
	}
	return false
}

// UntouchedClone is more than what a clone has of its own (usedbydataset), in
// bytes, before anything is written to it: 8 KiB of a filesystem, 56 KiB of a
// zvol, on sectors of 4 KiB. What mounts a filesystem and writes one file passes
// it.
const UntouchedClone = 96 << 10
