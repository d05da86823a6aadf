// Package zfs reads and changes datasets, snapshots and their properties. It
// reports facts ("does not exist", "busy") and decides nothing; what counts as
// done is pkg/volume's business.
//
// go-zfs is used where it is one command with a deadline: destroying, setting
// one property, reading a dataset's numbers. Everything else runs on pkg/run,
// since go-zfs lists after every verb, knows no user properties with their
// source, and takes an existing dataset for a success.
package zfs

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	gozfs "github.com/mistifyio/go-zfs/v4"

	"github.com/tarn-csi/tarn/pkg/run"
)

// killGrace is how long a go-zfs child may take to end after SIGTERM.
const killGrace = 5 * time.Second

// Client runs ZFS commands on this host.
type Client struct {
	run *run.Runner
}

// New returns a client. timeout bounds the commands that go-zfs starts, which
// know no context; it is a setting of the whole process, as is the C locale
// that go-zfs' children inherit and by which their messages are understood.
func New(r *run.Runner, timeout time.Duration) (*Client, error) {
	if err := os.Setenv("LC_ALL", "C"); err != nil {
		return nil, err
	}
	gozfs.SetRunner(&gozfs.Runner{Timeout: timeout, Grace: killGrace})
	return &Client{run: r}, nil
}

func (c *Client) zfs(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := c.run.Run(ctx, run.Cmd{Tool: "zfs", Args: args})
	return out, classify(name, err)
}

// viaLibrary runs a go-zfs call as a listed child of pkg/run.
func (c *Client) viaLibrary(ctx context.Context, verb, name string, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := c.run.Track("zfs", verb, "zfs "+verb+" "+name)
	err := call()
	done(err)
	return classify(name, err)
}

// Get reads every property of one dataset or snapshot with one command,
// whatever the pool holds. ErrNotExist when it does not exist.
func (c *Client) Get(ctx context.Context, name string) (Dataset, error) {
	out, err := c.zfs(ctx, name, "get", "-Hp", "-o", "name,property,value,source", "all", name)
	if err != nil {
		return Dataset{}, err
	}
	list, err := parseGet(string(out))
	if err != nil {
		return Dataset{}, err
	}
	if len(list) != 1 || list[0].Name != name {
		return Dataset{}, fmt.Errorf("zfs get %s: the output is of %d other datasets", name, len(list))
	}
	return list[0], nil
}

// Children reads the properties that are set on the filesystems and volumes
// directly below parent, the parent itself left out, with one command. Only
// properties with source local or received are in it, and so neither used nor
// available bytes.
func (c *Client) Children(ctx context.Context, parent string) ([]Dataset, error) {
	out, err := c.zfs(ctx, parent, "get", "-Hp", "-d", "1", "-t", "filesystem,volume",
		"-s", "local,received", "-o", "name,property,value,source", "all", parent)
	if err != nil {
		return nil, err
	}
	list, err := parseGet(string(out))
	if err != nil {
		return nil, err
	}
	children := list[:0]
	for _, d := range list {
		if d.Name != parent {
			children = append(children, d)
		}
	}
	return children, nil
}

// Spec is a dataset to be made.
type Spec struct {
	Name string
	// VolumeBytes makes a zvol of that size; zero makes a filesystem.
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
// without -u mounts and then runs exportfs -ra. ErrExists, ErrNoParent and
// ErrNoSpace are told apart.
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
	_, err := c.zfs(ctx, s.Name, append(args, s.Name)...)
	return err
}

// Destroy destroys one dataset or snapshot and nothing else. ErrBusy while
// something has it open, ErrDependents while it has children, snapshots or
// clones.
func (c *Client) Destroy(ctx context.Context, name string) error {
	return c.viaLibrary(ctx, "destroy", name, func() error {
		return (&gozfs.Dataset{Name: name}).Destroy(gozfs.DestroyDefault)
	})
}

// Set sets one property.
func (c *Client) Set(ctx context.Context, name string, s Setting) error {
	return c.viaLibrary(ctx, "set", name, func() error {
		return (&gozfs.Dataset{Name: name}).SetProperty(s.Name, s.Value)
	})
}

// Inherit removes a property that is set on the dataset.
func (c *Client) Inherit(ctx context.Context, name, property string) error {
	_, err := c.zfs(ctx, name, "inherit", property, name)
	return err
}

// Rename renames a filesystem or zvol, and leaves a mounted filesystem
// mounted where it was.
func (c *Client) Rename(ctx context.Context, from, to string) error {
	_, err := c.zfs(ctx, from, "rename", "-u", from, to)
	if err != nil && strings.Contains(run.Stderr(err), "only be used with filesystems") {
		_, err = c.zfs(ctx, from, "rename", from, to)
	}
	return err
}

// Available returns the bytes that can still be written below the dataset:
// what quotas and reservations of its parents leave.
func (c *Client) Available(ctx context.Context, name string) (int64, error) {
	var bytes int64
	err := c.viaLibrary(ctx, "list", name, func() error {
		d, err := gozfs.GetDataset(name)
		if err == nil {
			bytes = int64(min(d.Avail, 1<<63-1))
		}
		return err
	})
	return bytes, err
}
