package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Copy implements volume.ZFS.
func (f *ZFS) Copy(ctx context.Context, snapshot string, s zfs.Spec) error {
	return do0(ctx, f, "copy", s.Name, func() error {
		source, err := f.copySource(snapshot, s)
		if err != nil {
			return err
		}
		if f.nodes[s.Name] != nil {
			return refuse(zfs.ErrExists, "cannot copy to '%s': dataset already exists", s.Name)
		}
		if f.nodes[parent(s.Name)] == nil {
			return refuse(zfs.ErrNoParent, "cannot open '%s': dataset does not exist", parent(s.Name))
		}
		n := f.nodes[zfs.PartialName(s.Name)]
		if n != nil && !f.goesOn(n, source, s) {
			if err := f.dropPartial(n); err != nil {
				return err
			}
			n = nil
		}
		if n, err = f.receive(n, source, s, source.data); err != nil {
			return err
		}
		if err := f.settle(n, s); err != nil {
			return err
		}
		return f.move(n.name, s.Name)
	})
}

// MakePartial leaves what a Copy leaves that is killed in the middle.
func (f *ZFS) MakePartial(snapshot string, s zfs.Spec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	source, err := f.copySource(snapshot, s)
	if err != nil {
		return err
	}
	_, err = f.receive(nil, source, s, source.data/2)
	return err
}

func (f *ZFS) copySource(snapshot string, s zfs.Spec) (*node, error) {
	source, err := f.find(snapshot)
	if err != nil {
		return nil, err
	}
	if !source.snapshot || (source.typ == zfs.Volume) != (s.VolumeBytes > 0) {
		return nil, refuse(zfs.ErrBadValue, "%s cannot be made from %s", s.Name, snapshot)
	}
	if f.keyMissing(f.nodes[parent(snapshot)]) {
		return nil, refuse(zfs.ErrNoKey, "warning: cannot send '%s': dataset key must be loaded", snapshot)
	}
	return source, nil
}

// receive is `zfs receive -s -u` of the first bytes of a stream, into a dataset
// that is partial already or new.
func (f *ZFS) receive(n, source *node, s zfs.Spec, bytes int64) (*node, error) {
	if n != nil && n.receiving == nil {
		return n, nil
	}
	name := zfs.PartialName(s.Name)
	values := map[string]string{}
	for _, p := range s.Properties {
		if _, twice := values[p.Name]; twice {
			return nil, refuse(zfs.ErrBadValue, "property '%s' specified multiple times", p.Name)
		}
		v, err := checkProperty(source.typ, p)
		if err != nil {
			return nil, refuse(zfs.ErrBadValue, "cannot receive new filesystem stream: %s", err)
		}
		if p.Name == "volsize" || natives[p.Name].once {
			return nil, refuse(zfs.ErrBadValue, "cannot receive: invalid property '%s'", p.Name)
		}
		values[p.Name] = v
	}
	up := f.nodes[parent(name)]
	switch {
	case checkName(name) != nil:
		return nil, refuse(nil, "cannot receive new filesystem stream: kernel modules must be upgraded to receive this stream.")
	case up.typ != zfs.Filesystem:
		return nil, refuse(nil, "cannot receive new filesystem stream: parent is not a filesystem")
	case f.keyMissing(up):
		return nil, refuse(zfs.ErrNoKey, "cannot receive new filesystem stream: inherited key must be loaded")
	}
	if n == nil {
		n = f.newNode(name, source.typ)
		n.receiving, n.blockBytes, n.blockSource = source, source.blockBytes, "-"
		f.nodes[name] = n
	}
	delete(values, "refreservation") // settle finds it missing, as when the kernel refuses it
	delete(values, "refquota")
	maps.Copy(n.local, values)
	room := f.room(up)
	if bytes-n.unique > room {
		n.data += room
		n.unique += room
		return nil, refuse(zfs.ErrNoSpace, "cannot receive new filesystem stream: destination %s space quota exceeded.", name)
	}
	n.data, n.unique = bytes, bytes
	if bytes < source.data {
		return n, nil
	}
	n.receiving, n.root, n.volBytes = nil, source.root, source.volBytes
	n.freshTill = time.Now().Add(f.fresh)
	f.txg++
	if err := f.copyFiles(n, source); err != nil {
		return nil, err
	}
	_, snapshot, _ := strings.Cut(source.name, "@")
	if err := f.takeSnapshot(name+"@"+snapshot, nil); err != nil {
		return nil, err
	}
	f.nodes[name+"@"+snapshot].guid = source.guid
	return n, nil
}

// settle sets what the stream did not bring.
func (f *ZFS) settle(n *node, s zfs.Spec) error {
	list := slices.Clone(s.Properties)
	if s.VolumeBytes > 0 && n.volBytes != s.VolumeBytes {
		list = append(list, zfs.Setting{Name: "volsize", Value: bytesText(s.VolumeBytes)})
	}
	given := slices.ContainsFunc(s.Properties, func(p zfs.Setting) bool { return p.Name == "refreservation" })
	if s.VolumeBytes > 0 && !s.Thin && !given {
		list = append(list, zfs.Setting{Name: "refreservation", Value: auto})
	}
	return f.set(n, list...)
}

// goesOn reports whether a partial dataset is what a former call left.
func (f *ZFS) goesOn(n, source *node, s zfs.Spec) bool {
	for name := range n.local {
		asked := slices.ContainsFunc(s.Properties, func(p zfs.Setting) bool { return p.Name == name })
		if !asked && name != "refreservation" {
			return false
		}
	}
	if n.receiving != nil {
		return n.receiving == source
	}
	_, snapshot, _ := strings.Cut(source.name, "@")
	received := f.nodes[n.name+"@"+snapshot]
	return received != nil && received.guid == source.guid
}

// DropCopy implements volume.ZFS.
func (f *ZFS) DropCopy(ctx context.Context, dataset string) error {
	return do0(ctx, f, "dropcopy", dataset, func() error {
		n, err := f.find(zfs.PartialName(dataset))
		if err != nil {
			return err
		}
		return f.dropPartial(n)
	})
}

func (f *ZFS) dropPartial(n *node) error {
	if snapshots := f.snapshots(n); len(snapshots) == 1 {
		if err := f.destroySnapshot(snapshots[0]); err != nil {
			return err
		}
	}
	n.freshTill = time.Time{} // package zfs waits for it
	return f.destroy(n.name)
}

// token is the property of a dataset that is not whole.
func (n *node) token() zfs.Property {
	if n.receiving == nil {
		return zfs.Property{Value: "-", Source: "-"}
	}
	return zfs.Property{Value: fmt.Sprintf("1-%x-b8-789c", n.receiving.guid), Source: "-"}
}
