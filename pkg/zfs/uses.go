package zfs

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// SnapshotUses lists every snapshot of the datasets below parent, at any depth,
// other tools' too, with what keeps it and nothing else: Clones, userrefs (the
// number of holds, zfs-hold(8)), defer_destroy. One command. ErrNoParent when the
// parent does not exist.
func (c *Client) SnapshotUses(ctx context.Context, parent string) ([]Dataset, error) {
	known := func(name string) bool {
		dataset, _, isSnapshot := strings.Cut(name, "@")
		return isSnapshot && (dataset == parent || strings.HasPrefix(dataset, parent+"/"))
	}
	list, err := c.get(ctx, parent, known, "-r", "-t", "snapshot", "clones,userrefs,defer_destroy", parent)
	if errors.Is(err, ErrNotExist) {
		err = recast(err, ErrNoParent)
	}
	if err != nil {
		return nil, err
	}
	return below(list, parent), nil
}

// below leaves out the snapshots of the parent itself.
func below(list []Dataset, parent string) []Dataset {
	return slices.DeleteFunc(list, func(d Dataset) bool { return strings.HasPrefix(d.Name, parent+"@") })
}
