package fake

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Snapshot implements volume.ZFS.
func (f *ZFS) Snapshot(ctx context.Context, s zfs.SnapshotSpec) error {
	return do0(ctx, f, "snapshot", strings.Join(s.Names, " "), func() error { return f.takeSnapshots(s) })
}

// takeSnapshots checks what zfs_do_snapshot, zfs_snapshot_nvl and the kernel
// check, in that order: all or none.
func (f *ZFS) takeSnapshots(s zfs.SnapshotSpec) error {
	properties := map[string]string{}
	for _, p := range s.Properties {
		if _, twice := properties[p.Name]; twice {
			return refuse(zfs.ErrBadValue, "property '%s' specified multiple times", p.Name)
		}
		properties[p.Name] = p.Value
	}
	if len(s.Names) == 0 {
		return refuse(nil, "missing snapshot argument")
	}
	for _, name := range s.Names {
		dataset, _, ok := strings.Cut(name, "@")
		if !ok {
			return refuse(nil, "usage:")
		}
		if _, err := f.find(dataset); err != nil {
			return err
		}
	}
	for _, name := range s.Names {
		if err := checkName(name); err != nil {
			return refuse(zfs.ErrBadValue, "cannot create snapshot '%s': %s", name, err)
		}
	}
	for name, value := range properties {
		if !userProperty(name) || checkUserProperty(name, value) != nil {
			return refuse(zfs.ErrBadValue, "cannot create snapshots : this property can not be modified for snapshots")
		}
	}
	names := slices.Compact(slices.Sorted(slices.Values(s.Names)))
	for i, name := range names {
		if i > 0 && parent(name) == parent(names[i-1]) {
			return refuse(zfs.ErrBadValue, "cannot create snapshots : multiple snapshots of same fs not allowed")
		}
	}
	for _, name := range names {
		n := f.nodes[parent(name)]
		if f.nodes[name] != nil {
			return refuse(zfs.ErrExists, "cannot create snapshot '%s': dataset already exists", name)
		}
		if n.receiving != nil {
			return refuse(zfs.ErrBusy, "cannot create snapshot '%s': dataset is busy", name)
		}
		// A reservation holds for what no snapshot shares, so it has to be found
		// once more (dsl_dataset_snapshot_reserve_space).
		if min(n.unique, n.number("refreservation")) > f.room(n) {
			return refuse(zfs.ErrNoSpace, "cannot create snapshot '%s': out of space", name)
		}
	}
	f.txg++
	for _, name := range names {
		if err := f.takeSnapshot(name, s.Properties); err != nil {
			return err
		}
	}
	return nil
}

func (f *ZFS) takeSnapshot(name string, properties []zfs.Setting) error {
	n := f.nodes[parent(name)]
	f.guids++
	s := &node{
		name: name, typ: n.typ, snapshot: true, local: map[string]string{}, received: map[string]string{},
		data: n.data, unique: n.unique, volBytes: n.volBytes, blockBytes: n.blockBytes,
		created: time.Now(), txg: f.txg, guid: f.guids, root: n.root,
	}
	for _, p := range properties {
		s.local[p.Name] = p.Value
	}
	n.unique = 0
	f.nodes[name] = s
	return f.copyFiles(s, n)
}

// copyFiles gives a filesystem or its snapshot the files of another.
func (f *ZFS) copyFiles(to, from *node) error {
	if from.typ != zfs.Filesystem {
		return nil
	}
	to.content = f.contentDir(to)
	return os.CopyFS(to.content, os.DirFS(from.dir()))
}

// dir is where the files of a filesystem are now.
func (n *node) dir() string {
	if n.mountedAt != "" {
		return n.mountedAt
	}
	return n.content
}

// Snapshots implements volume.ZFS.
func (f *ZFS) Snapshots(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	return do(ctx, f, "snapshots", parent, func() ([]zfs.Dataset, error) {
		if _, err := f.findParent(parent); err != nil {
			return nil, err
		}
		var list []zfs.Dataset
		for name, n := range f.nodes {
			if n.snapshot && strings.HasPrefix(name, parent+"/") {
				list = f.appendOwn(list, n)
			}
		}
		slices.SortFunc(list, func(a, b zfs.Dataset) int { return strings.Compare(a.Name, b.Name) })
		return list, nil
	})
}

// DestroyLater implements volume.ZFS.
func (f *ZFS) DestroyLater(ctx context.Context, snapshot string) error {
	return do0(ctx, f, "destroy", snapshot, func() error {
		if !strings.Contains(snapshot, "@") {
			return refuse(zfs.ErrBadValue, "cannot open '%s': missing '@' delimiter in snapshot name", snapshot)
		}
		n, err := f.findSnapshot(snapshot)
		if err != nil {
			return err
		}
		n.deferred = true
		f.reap(n)
		return nil
	})
}

// findSnapshot is find as zfs-destroy(8) does it.
func (f *ZFS) findSnapshot(name string) (*node, error) {
	if n := f.nodes[name]; n != nil {
		return n, nil
	}
	if _, err := f.findParent(parent(name)); err != nil {
		return nil, err
	}
	return nil, refuse(zfs.ErrNotExist, "could not find any snapshots to destroy; check snapshot names.")
}

// reap removes a snapshot that waited for its last clone or hold.
func (f *ZFS) reap(n *node) {
	if n.deferred && len(f.clones(n)) == 0 && n.userRefs == 0 {
		f.remove(n)
	}
}

// Clone implements volume.ZFS.
func (f *ZFS) Clone(ctx context.Context, snapshot string, s zfs.Spec) error {
	return do0(ctx, f, "clone", s.Name, func() error { return f.clone(snapshot, s) })
}

// clone checks what zfs_do_clone, zfs_clone in libzfs and the kernel check, in
// that order.
func (f *ZFS) clone(snapshot string, s zfs.Spec) error {
	origin, err := f.find(snapshot)
	if err != nil {
		return err
	}
	if !origin.snapshot {
		return refuse(zfs.ErrBadValue, "cannot open '%s': missing '@' delimiter in snapshot name", snapshot)
	}
	if err := checkNewName(s.Name); err != nil {
		return err
	}
	values, err := newValues(origin.typ, s.Name, append(cloneSettings(s), s.Properties...))
	if err != nil {
		return err
	}
	for name, value := range values {
		if _, err := origin.live().settable(zfs.Setting{Name: name, Value: value}); err != nil {
			return refuse(zfs.ErrBadValue, "cannot create '%s': %s", s.Name, err)
		}
	}
	up, err := f.place(s.Name)
	if err != nil {
		return err
	}
	n := f.newNode(s.Name, origin.typ)
	n.origin, n.data, n.unique, n.root = origin, origin.data, 0, origin.root
	if n.typ == zfs.Volume {
		n.volBytes, n.blockBytes, n.blockSource = s.VolumeBytes, origin.blockBytes, "-"
		n.freshTill = time.Now().Add(f.fresh)
		delete(values, "volsize")
	}
	n.local = values
	n.resolveAuto()
	if err := f.fitsNew(n, up); err != nil {
		return err
	}
	f.nodes[s.Name] = n
	return f.copyFiles(n, origin)
}

// cloneSettings are what package zfs adds to the properties of a clone.
func cloneSettings(s zfs.Spec) []zfs.Setting {
	if s.VolumeBytes == 0 {
		return []zfs.Setting{{Name: "canmount", Value: "noauto"}}
	}
	list := []zfs.Setting{{Name: "volsize", Value: bytesText(s.VolumeBytes)}}
	given := slices.ContainsFunc(s.Properties, func(p zfs.Setting) bool { return p.Name == "refreservation" })
	if !s.Thin && !given {
		list = append(list, zfs.Setting{Name: "refreservation", Value: auto})
	}
	return list
}

// live is a snapshot's dataset as it was, for checks that a snapshot itself would
// not pass.
func (n *node) live() *node { return &node{typ: n.typ, volBytes: n.volBytes, blockBytes: n.blockBytes} }

func (f *ZFS) contentDir(n *node) string {
	return filepath.Join(f.dir, ".datasets", bytesText(int64(n.guid)))
}
