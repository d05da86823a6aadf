package zfs

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LooksEmpty reports that a dataset holds no data at all: a filesystem whose
// root is empty, a zvol that nothing was ever written to. It is for datasets
// that a power loss left unfinished, and takes several commands.
func (c *Client) LooksEmpty(ctx context.Context, d Dataset) (bool, error) {
	if d.Type() == Volume {
		return c.emptyVolume(ctx, d)
	}
	return c.emptyFilesystem(ctx, d)
}

func (c *Client) emptyFilesystem(ctx context.Context, d Dataset) (empty bool, err error) {
	dir, mounted, err := c.MountedAt(ctx, d.Name)
	if err != nil {
		return false, err
	}
	if !mounted {
		if dir, err = os.MkdirTemp("", "tarn-look-"); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, os.Remove(dir)) }()
		if err := mount(ctx, d.Name, dir, serverMountFlags|unix.MS_RDONLY); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)) }()
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0, err
}

// probePrefix marks the zvol that emptyVolume makes for comparison. No volume's
// name begins with a dot, so it is never taken for one.
const probePrefix = ".untouched."

// ProbeName reports that a component is the name of a zvol that LooksEmpty made,
// and that outlived it.
func ProbeName(component string) bool { return strings.HasPrefix(component, probePrefix) }

// emptyVolume compares the zvol with a new one of the same size and block size
// beside it. How much an untouched zvol refers to is no constant: it grows with
// the sectors of the pool's disks (6 KiB at 512 bytes, 28 KiB at 4 KiB) and is
// the same for every zvol of a pool, whatever its size. Anything written adds at
// least a block to it.
func (c *Client) emptyVolume(ctx context.Context, d Dataset) (empty bool, err error) {
	i := strings.LastIndexByte(d.Name, '/') + 1
	probe := d.Name[:i] + probePrefix + d.Name[i:]
	spec := Spec{Name: probe, Thin: true, VolumeBytes: d.Bytes("volsize"), Properties: []Setting{
		{Name: "volblocksize", Value: strconv.FormatInt(d.Bytes("volblocksize"), 10)},
		// Its device is there for the moment before this is set, no longer.
		{Name: "volmode", Value: "none"},
	}}
	if err := c.Create(ctx, spec); err != nil && !errors.Is(err, ErrExists) {
		return false, err
	}
	defer func() { err = errors.Join(err, c.destroyIdle(ctx, probe)) }()
	untouched, err := c.Get(ctx, probe)
	if err != nil {
		return false, err
	}
	return d.Bytes("logicalreferenced") <= untouched.Bytes("logicalreferenced"), nil
}

// destroyIdle destroys a zvol that nobody uses, which udev may look at for a
// moment.
func (c *Client) destroyIdle(ctx context.Context, zvol string) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.Destroy(ctx, zvol)
		if !errors.Is(err, ErrBusy) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}
