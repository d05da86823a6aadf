package zfs

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	gozfs "github.com/mistifyio/go-zfs/v4"

	"github.com/tarn-csi/tarn/pkg/run"
)

// Spec is a dataset to be made.
type Spec struct {
	Name string
	// VolumeBytes makes a zvol of that size; zero makes a filesystem. ZFS
	// rounds it up to a multiple of the volblocksize without a word.
	VolumeBytes int64
	// Thin leaves out the reservation that a zvol otherwise gets.
	Thin bool
	// Properties are set in the same command: all of them or nothing exists,
	// except after a power loss between the kernel's two steps.
	Properties []Setting
}

// Setting is a property to be set.
type Setting struct{ Name, Value string }

// Create makes a dataset. A filesystem is not mounted, since `zfs create`
// without -u mounts and then runs exportfs -ra. ErrExists, ErrNoParent,
// ErrNoSpace, ErrNoKey and ErrBadValue are told apart.
func (c *Client) Create(ctx context.Context, s Spec) error {
	args := []string{"create"}
	if s.VolumeBytes > 0 {
		if s.Thin {
			args = append(args, "-s")
		}
		args = append(args, "-V", strconv.FormatInt(s.VolumeBytes, 10))
	} else {
		args = append(args, "-u")
	}
	for _, p := range s.Properties {
		args = append(args, "-o", p.Name+"="+p.Value)
	}
	_, err := c.zfs(ctx, append(args, s.Name), s.Name)
	return err
}

// Destroy destroys one dataset or snapshot and nothing else; a filesystem that
// is mounted and not used is unmounted first. ErrBusy while something has it
// open or a hold keeps it (zfs-hold(8)), ErrDependents while it has children,
// snapshots or clones.
func (c *Client) Destroy(ctx context.Context, name string) error {
	if err := oneSnapshot(name); err != nil {
		return err
	}
	return c.viaLibrary(ctx, "destroy", name, func() error {
		return (&gozfs.Dataset{Name: name}).Destroy(gozfs.DestroyDefault)
	})
}

// Set sets one property. Nothing keeps a volsize from shrinking.
func (c *Client) Set(ctx context.Context, name string, s Setting) error {
	return c.viaLibrary(ctx, "set", name, func() error {
		return (&gozfs.Dataset{Name: name}).SetProperty(s.Name, s.Value)
	})
}

// SetAll sets several properties with one command, which is not atomic: when a
// value is impossible in itself, nothing is set; what the kernel refuses (a
// refquota below the used bytes) leaves all the others set. User properties land
// together. The order does not matter, also where one makes room for another.
func (c *Client) SetAll(ctx context.Context, name string, list []Setting) error {
	args := []string{"set"}
	for _, p := range list {
		args = append(args, p.Name+"="+p.Value)
	}
	_, err := c.zfs(ctx, append(args, name), name)
	return err
}

// Inherit removes a property that is set on the dataset, received ones too.
func (c *Client) Inherit(ctx context.Context, name, property string) error {
	_, err := c.zfs(ctx, []string{"inherit", property, name}, name)
	return err
}

// Rename renames a filesystem, zvol or snapshot, and leaves a mounted
// filesystem mounted where it was. ErrNoParent when the new name's parent does
// not exist.
func (c *Client) Rename(ctx context.Context, from, to string) error {
	// -u is for filesystems, and refused for everything else.
	plain := []string{"rename", from, to}
	if strings.Contains(from, "@") || isZvol(from) {
		_, err := c.zfs(ctx, plain, from, to)
		return err
	}
	_, err := c.zfs(ctx, []string{"rename", "-u", from, to}, from, to)
	if err != nil && strings.HasSuffix(run.Stderr(err), "operation not applicable to datasets of this type") {
		_, err = c.zfs(ctx, plain, from, to)
	}
	return err
}

// zvolDir is where udev links the devices of zvols.
const zvolDir = "/dev/zvol/"

// DevicePath is where the device of a zvol appears some time after the zvol
// does. Where a dataset's name has a blank, udev's rule has a plus sign.
func DevicePath(dataset string) string { return zvolDir + strings.ReplaceAll(dataset, " ", "+") }

// RemakeDevice has the kernel make anew the device of the zvol whose DevicePath
// that is, where nothing uses it. Cut off in between, the zvol is without one
// until the next call.
func (c *Client) RemakeDevice(ctx context.Context, device string) error {
	name := strings.TrimPrefix(device, zvolDir)
	err := c.setVolmodes(ctx, name)
	if blank := strings.ReplaceAll(name, "+", " "); errors.Is(err, ErrNotExist) && blank != name {
		err = c.setVolmodes(ctx, blank)
	}
	return err
}

func (c *Client) setVolmodes(ctx context.Context, name string) error {
	for _, mode := range []string{"none", "dev"} {
		if err := c.Set(ctx, name, Setting{Name: "volmode", Value: mode}); err != nil {
			return err
		}
	}
	return nil
}

// isZvol spares a command: it is true for a zvol whose device is there. A
// filesystem with zvols below it has a directory of that name.
func isZvol(dataset string) bool {
	info, err := os.Lstat(DevicePath(dataset))
	return err == nil && info.Mode()&os.ModeSymlink != 0
}
