package zfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	gozfs "github.com/mistifyio/go-zfs/v4"
)

// Get reads every property of one dataset or snapshot with one command,
// whatever the pool holds.
//
// ErrNotExist when it does not exist although its parent does, and ErrNoParent
// when neither does, as in a pool that is not imported: that proves nothing.
func (c *Client) Get(ctx context.Context, name string) (Dataset, error) {
	list, err := c.getNamed(ctx, name)
	if err != nil {
		return Dataset{}, err
	}
	return list[0], nil
}

// GetWithParent is Get of a dataset and of the one above it, with one command:
// what a volume may still grow by is the parent's to say.
func (c *Client) GetWithParent(ctx context.Context, name string) (d, above Dataset, err error) {
	list, err := c.getNamed(ctx, name, parent(name))
	if err != nil {
		return Dataset{}, Dataset{}, err
	}
	return list[0], list[1], nil
}

// getNamed reads name and further datasets, in that order. It is name whose
// absence is told from that of its parent.
func (c *Client) getNamed(ctx context.Context, name string, further ...string) ([]Dataset, error) {
	names := append([]string{name}, further...)
	list, err := c.get(ctx, name, func(dataset string) bool { return slices.Contains(names, dataset) }, append([]string{"all"}, names...)...)
	if errors.Is(err, ErrNotExist) && parent(name) != "" {
		_, parentErr := c.zfs(ctx, []string{"list", "-H", "-o", "name", parent(name)}, parent(name))
		if errors.Is(parentErr, ErrNotExist) {
			return nil, recast(parentErr, ErrNoParent)
		}
		if parentErr != nil {
			return nil, parentErr
		}
	}
	if err != nil {
		return nil, err
	}
	// zfs(8) prints them in an order of its own.
	slices.SortFunc(list, func(a, b Dataset) int { return slices.Index(names, a.Name) - slices.Index(names, b.Name) })
	if !slices.EqualFunc(list, names, func(d Dataset, name string) bool { return d.Name == name }) {
		return nil, fmt.Errorf("zfs get %s: the output is of %d other datasets", strings.Join(names, " "), len(list))
	}
	return list, nil
}

// Children reads the properties that are set on the filesystems and volumes
// directly below parent, the parent itself left out, with one command. Only
// properties with source local or received are in it, and so neither used nor
// available bytes; a dataset without any is left out. ErrNoParent when the
// parent does not exist.
func (c *Client) Children(ctx context.Context, parent string) ([]Dataset, error) {
	known := func(dataset string) bool {
		below, ok := strings.CutPrefix(dataset, parent+"/")
		return dataset == parent || ok && !strings.Contains(below, "/")
	}
	list, err := c.listOwn(ctx, parent, known, "-d", "1", "-t", "filesystem,volume")
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

// listOwn lists what is set on datasets themselves, in and below parent.
func (c *Client) listOwn(ctx context.Context, parent string, known func(string) bool, which ...string) ([]Dataset, error) {
	list, err := c.get(ctx, parent, known, append(which, "-s", "local,received", "all", parent)...)
	if errors.Is(err, ErrNotExist) {
		err = recast(err, ErrNoParent)
	}
	return list, err
}

// get lists properties with their sources; with a second command where values
// from another host, or ones with line breaks, are among them.
func (c *Client) get(ctx context.Context, name string, known func(string) bool, args ...string) ([]Dataset, error) {
	list := func(columns string) (string, error) {
		return c.zfs(ctx, append([]string{"get", "-Hp", "-o", columns}, args...), name)
	}
	out, err := list(withValues)
	if err != nil {
		return nil, err
	}
	datasets, doubtful := parseGet(out, known)
	if !doubtful {
		return datasets, nil
	}
	truth, err := list(withoutValues)
	if err != nil {
		return nil, err
	}
	return parseDoubtful(out, truth), nil
}

// Available returns the bytes that can still be written below the dataset:
// what quotas and reservations of its parents leave. ErrNoParent when it does
// not exist.
func (c *Client) Available(ctx context.Context, name string) (int64, error) {
	var bytes int64
	err := c.viaLibrary(ctx, "list", name, func() error {
		d, err := gozfs.GetDataset(name)
		if err == nil {
			bytes = int64(min(d.Avail, 1<<63-1))
		}
		return err
	})
	if errors.Is(err, ErrNotExist) {
		err = recast(err, ErrNoParent)
	}
	return bytes, err
}

// parent returns the dataset above a dataset, or that of a snapshot; "" for a
// pool.
func parent(name string) string {
	if i := strings.LastIndexAny(name, "/@"); i >= 0 {
		return name[:i]
	}
	return ""
}
