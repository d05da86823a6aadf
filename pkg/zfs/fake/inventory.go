package fake

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Inventory implements volume.ZFS.
func (f *ZFS) Inventory(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	return do(ctx, f, "inventory", parent, func() ([]zfs.Dataset, error) {
		if _, err := f.findParent(parent); err != nil {
			return nil, err
		}
		var list []zfs.Dataset
		for name, n := range f.nodes {
			if !strings.HasPrefix(name, parent+"/") {
				continue
			}
			all, some := f.properties(n), map[string]zfs.Property{}
			for _, p := range zfs.InventoryProperties {
				if have, ok := all[p]; ok {
					some[p] = have
				}
			}
			list = append(list, zfs.NewDataset(name, some))
		}
		slices.SortFunc(list, func(a, b zfs.Dataset) int { return strings.Compare(a.Name, b.Name) })
		return list, nil
	})
}

// Holders implements volume.ZFS.
func (f *ZFS) Holders(ctx context.Context, property string) (map[string]string, error) {
	return do(ctx, f, "holders", "", func() (map[string]string, error) {
		holders := map[string]string{}
		for name, n := range f.nodes {
			if v, ok := n.local[property]; ok && !n.snapshot {
				holders[v] = name
			} else if v, ok := n.received[property]; ok && !n.snapshot {
				holders[v] = name
			}
		}
		return holders, nil
	})
}
