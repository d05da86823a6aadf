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
