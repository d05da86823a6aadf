package zfs

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// InventoryProperties are what Inventory reads. The volsize is not among them,
// so Type tells nothing: ask for "type", which also says snapshot.
var InventoryProperties = []string{
	"type", "used", "usedbysnapshots", "keystatus", "creation", "clones", "userrefs", "defer_destroy", "tarn:name", "tarn:uuid",
}

// Inventory lists everything below parent, at any depth, other tools' datasets
// and snapshots too, with InventoryProperties, whatever their sources. One
// command. ErrNoParent when the parent does not exist.
func (c *Client) Inventory(ctx context.Context, parent string) ([]Dataset, error) {
	known := func(name string) bool {
		dataset, _, _ := strings.Cut(name, "@")
		return dataset == parent || strings.HasPrefix(dataset, parent+"/")
	}
	list, err := c.get(ctx, parent, known, "-r", "-t", "filesystem,volume,snapshot", strings.Join(InventoryProperties, ","), parent)
	if errors.Is(err, ErrNotExist) {
		err = recast(err, ErrNoParent)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(below(list, parent), func(d Dataset) bool { return d.Name == parent }), nil
}

// Holders returns the filesystems and zvols of every imported pool on which a
// property is set, by its value. One command.
func (c *Client) Holders(ctx context.Context, property string) (map[string]string, error) {
	out, err := c.zfs(ctx, []string{"get", "-H", "-t", "filesystem,volume", "-s", "local,received", "-o", "name,value", property}, "")
	if err != nil {
		return nil, err
	}
	holders := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			holders[value] = name
		}
	}
	return holders, nil
}
