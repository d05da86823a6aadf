package fake

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// SnapshotUses implements volume.ZFS.
func (f *ZFS) SnapshotUses(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	return do(ctx, f, "snapshotuses", parent, func() ([]zfs.Dataset, error) {
		if _, err := f.findParent(parent); err != nil {
			return nil, err
		}
		var list []zfs.Dataset
		for name, n := range f.nodes {
			if !n.snapshot || !strings.HasPrefix(name, parent+"/") {
				continue
			}
			all, uses := f.properties(n), map[string]zfs.Property{}
			for _, p := range []string{"clones", "userrefs", "defer_destroy"} {
				uses[p] = all[p]
			}
			list = append(list, zfs.NewDataset(name, uses))
		}
		slices.SortFunc(list, func(a, b zfs.Dataset) int { return strings.Compare(a.Name, b.Name) })
		return list, nil
	})
}
