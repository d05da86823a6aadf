package fake

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Create implements volume.ZFS. A refused value leaves nothing.
func (f *ZFS) Create(ctx context.Context, s zfs.Spec) error {
	return do0(ctx, f, "create", s.Name, func() error {
		n, err := f.make(s)
		if err != nil {
			return err
		}
		f.nodes[s.Name] = n
		return nil
	})
}

// make checks what zfs_do_create, zfs_create in libzfs and the kernel check, in
// that order, and returns the dataset without putting it into the pool.
func (f *ZFS) make(s zfs.Spec) (*node, error) {
	t := zfs.Filesystem
	if s.VolumeBytes > 0 {
		t = zfs.Volume
	}
	if err := checkName(s.Name); err != nil || strings.Contains(s.Name, "@") {
		if err == nil {
			return nil, refuse(zfs.ErrBadValue, "cannot create '%s': snapshot delimiter '@' is not expected here", s.Name)
		}
		return nil, refuse(zfs.ErrBadValue, "cannot create '%s': %s", s.Name, err)
	}
	values := map[string]string{}
	for _, p := range s.Properties {
		if _, twice := values[p.Name]; twice {
			return nil, refuse(zfs.ErrBadValue, "property '%s' specified multiple times", p.Name)
		}
		v, err := checkProperty(t, p)
		if err != nil {
			return nil, refuse(zfs.ErrBadValue, "cannot create '%s': %s", s.Name, err)
		}
		values[p.Name] = v
	}
	up := f.nodes[parent(s.Name)]
	switch {
	case parent(s.Name) == "":
		return nil, refuse(zfs.ErrNoParent, "cannot create '%s': missing dataset name", s.Name)
	case up == nil:
		return nil, refuse(zfs.ErrNoParent, "cannot create '%s': parent does not exist", s.Name)
	case up.typ != zfs.Filesystem:
		return nil, refuse(nil, "cannot create '%s': parent is not a filesystem", s.Name)
	case f.nodes[s.Name] != nil:
		return nil, refuse(zfs.ErrExists, "cannot create '%s': dataset already exists", s.Name)
	case strings.Count(s.Name, "/") >= maxNesting:
		return nil, refuse(zfs.ErrBadValue, "cannot create '%s': name is too deep", s.Name)
	case f.keyMissing(up):
		return nil, refuse(zfs.ErrNoKey, "cannot create '%s': encryption root's key is not loaded or provided", s.Name)
	}
	n := f.newNode(s.Name, t)
	if t == zfs.Volume {
		n.blockBytes, n.blockSource = 8192, "default"
		if b, ok := values["volblocksize"]; ok {
			n.blockBytes, _ = strconv.ParseInt(b, 10, 64)
			n.blockSource = "-"
			delete(values, "volblocksize")
		}
		// zfs_do_create rounds up, where `zfs set` refuses.
		n.volBytes = (s.VolumeBytes + n.blockBytes - 1) / n.blockBytes * n.blockBytes
		if _, given := values["refreservation"]; !given && !s.Thin {
			values["refreservation"] = strconv.FormatInt(volumeReservation(n.volBytes, n.blockBytes), 10)
		}
		n.freshTill = time.Now().Add(f.fresh)
	}
	n.local = values
	reserved := max(n.number("refreservation"), n.number("reservation"))
	room := f.room(up)
	if q := n.number("quota"); q > 0 {
		room = min(room, q)
	}
	if max(reserved, n.unique) > room {
		return nil, refuse(zfs.ErrNoSpace, "cannot create '%s': out of space", s.Name)
	}
	if q := n.number("refquota"); q > 0 && (q < n.data || q < n.number("refreservation")) {
		return nil, refuse(zfs.ErrNoSpace, "cannot create '%s': out of space", s.Name)
	}
	return n, nil
}

// checkProperty returns a value in the form that is kept.
func checkProperty(t zfs.Type, p zfs.Setting) (string, error) {
	if userProperty(p.Name) {
		return p.Value, checkUserProperty(p.Name, p.Value)
	}
	return canonical(t, p.Name, p.Value)
}

// Destroy implements volume.ZFS. A mounted filesystem that nobody uses is
// unmounted first, as zfs-destroy(8) does.
func (f *ZFS) Destroy(ctx context.Context, name string) error {
	return do0(ctx, f, "destroy", name, func() error { return f.destroy(name) })
}

func (f *ZFS) destroy(name string) error {
	n := f.nodes[name]
	if n != nil && n.snapshot {
		return f.destroySnapshot(n)
	}
	if _, _, isSnapshot := strings.Cut(name, "@"); isSnapshot {
		if _, err := f.findParent(parent(name)); err != nil {
			return err
		}
		return refuse(zfs.ErrNotExist, "could not find any snapshots to destroy; check snapshot names.")
	}
	n, err := f.find(name)
	if err != nil {
		return err
	}
	if len(f.children(n)) > 0 || len(f.snapshots(n)) > 0 {
		return refuse(zfs.ErrDependents, "cannot destroy '%s': %s has children\nuse '-r' to destroy the following datasets:", name, n.typ)
	}
	if n.busy() && n.mountedAt != "" {
		return refuse(zfs.ErrBusy, "cannot unmount '%s': pool or dataset is busy", n.mountedAt)
	}
	if n.busy() {
		return refuse(zfs.ErrBusy, "cannot destroy '%s': dataset is busy", name)
	}
	if n.mountedAt != "" {
		if err := f.unmount(n); err != nil {
			return err
		}
	}
	f.remove(n)
	return nil
}

func (f *ZFS) destroySnapshot(n *node) error {
	if len(f.clones(n)) > 0 {
		return refuse(zfs.ErrDependents, "cannot destroy '%s': snapshot has dependent clones\nuse '-R' to destroy the following datasets:", n.name)
	}
	if n.userRefs > 0 || len(n.holds) > 0 {
		return refuse(zfs.ErrBusy, "cannot destroy snapshot %s: dataset is busy", n.name)
	}
	f.remove(n)
	return nil
}

// remove takes a dataset out of the pool, and with the last clone a snapshot
// that was waiting for it.
func (f *ZFS) remove(n *node) {
	delete(f.nodes, n.name)
	if n.content != "" {
		_ = os.RemoveAll(n.content)
	}
	if s := n.origin; s != nil && s.deferred && len(f.clones(s)) == 0 && s.userRefs == 0 {
		delete(f.nodes, s.name)
	}
}

// Set implements volume.ZFS.
func (f *ZFS) Set(ctx context.Context, name string, s zfs.Setting) error {
	return do0(ctx, f, "set", name, func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		return f.set(n, s)
	})
}

func (f *ZFS) set(n *node, s zfs.Setting) error {
	v, err := checkProperty(n.typ, s)
	if err == nil && n.snapshot && !userProperty(s.Name) {
		return refuse(zfs.ErrBadValue, "cannot set property for '%s': '%s' property cannot be modified for snapshots", n.name, s.Name)
	}
	if err != nil {
		return refuse(zfs.ErrBadValue, "cannot set property for '%s': %s", n.name, err)
	}
	if natives[s.Name].once {
		return refuse(zfs.ErrBadValue, "cannot set property for '%s': '%s' is readonly", n.name, s.Name)
	}
	bytes, _ := strconv.ParseInt(v, 10, 64)
	switch s.Name {
	case "volsize":
		return f.setVolsize(n, bytes)
	case "refquota":
		if bytes > 0 && (bytes < n.data || bytes < n.number("refreservation")) {
			return refuse(zfs.ErrBadValue, "cannot set property for '%s': size is less than current used or reserved space", n.name)
		}
	case "quota":
		if bytes > 0 && (bytes < f.used(n) || bytes < n.number("reservation")) {
			return refuse(zfs.ErrBadValue, "cannot set property for '%s': size is less than current used or reserved space", n.name)
		}
	case "refreservation":
		if err := f.fits(n, bytes); err != nil {
			return err
		}
	case "reservation":
		if more := max(bytes, f.used(n)) - max(n.number("reservation"), f.used(n)); more > f.room(f.above(n)) {
			return refuse(zfs.ErrNoSpace, "cannot set property for '%s': size is greater than available space", n.name)
		}
	}
	n.local[s.Name] = v
	return nil
}

// fits refuses a refreservation that the pool cannot give or the refquota
// forbids.
func (f *ZFS) fits(n *node, bytes int64) error {
	more := max(bytes, n.unique) - max(n.number("refreservation"), n.unique)
	q := n.number("refquota")
	if more > f.room(n) || q > 0 && bytes > q {
		return refuse(zfs.ErrNoSpace, "cannot set property for '%s': size is greater than available space", n.name)
	}
	return nil
}

// setVolsize grows and shrinks alike: what is past the end is lost without a
// question. The reservation of a thick zvol goes along.
func (f *ZFS) setVolsize(n *node, bytes int64) error {
	if bytes == 0 {
		return refuse(zfs.ErrBadValue, "cannot set property for '%s': 'volsize' cannot be zero", n.name)
	}
	if bytes%n.blockBytes != 0 {
		return refuse(zfs.ErrBadValue, "cannot set property for '%s': 'volsize' must be a multiple of volume block size (%d)", n.name, n.blockBytes)
	}
	if have := n.number("refreservation"); have > 0 && have == volumeReservation(n.volBytes, n.blockBytes) {
		want := volumeReservation(bytes, n.blockBytes)
		if err := f.fits(n, want); err != nil {
			return err
		}
		n.local["refreservation"] = strconv.FormatInt(want, 10)
	}
	n.volBytes = bytes
	return nil
}

func (f *ZFS) above(n *node) *node {
	if up := f.nodes[parent(n.name)]; up != nil {
		return up
	}
	return n
}

// Inherit implements volume.ZFS. A property that is not set is a success.
func (f *ZFS) Inherit(ctx context.Context, name, property string) error {
	return do0(ctx, f, "inherit", name, func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		p, isNative := natives[property]
		switch {
		case isNative && p.own:
			return refuse(zfs.ErrBadValue, "'%s' property cannot be inherited", property)
		case !isNative && !userProperty(property):
			return refuse(nil, "invalid property '%s'", property)
		case !isNative:
			if err := checkUserProperty(property, ""); err != nil {
				return refuse(nil, "%s", err)
			}
		}
		delete(n.local, property)
		delete(n.received, property) // without -S a received value is hidden too
		return nil
	})
}

// Rename implements volume.ZFS. Properties, snapshots, children and mounts go
// along; what is mounted stays where it is.
func (f *ZFS) Rename(ctx context.Context, from, to string) error {
	return do0(ctx, f, "rename", from, func() error {
		n, err := f.find(from)
		if err != nil {
			return err
		}
		if to == from {
			return nil
		}
		if err := checkName(to); err != nil {
			return refuse(zfs.ErrBadValue, "cannot rename to '%s': %s", to, err)
		}
		up := f.nodes[parent(to)]
		switch {
		case n.snapshot != strings.Contains(to, "@"), n.snapshot && parent(from) != parent(to):
			return refuse(zfs.ErrBadValue, "cannot rename to '%s': snapshots must be part of same dataset", to)
		case up == nil:
			return refuse(zfs.ErrNoParent, "cannot create '%s': parent does not exist", to)
		case f.nodes[to] != nil:
			return refuse(zfs.ErrExists, "cannot rename '%s': dataset already exists", from)
		case strings.HasPrefix(to, from+"/"):
			return refuse(zfs.ErrBadValue, "cannot rename to '%s': New dataset name cannot be a descendant of current dataset name", to)
		case !n.snapshot && up.typ != zfs.Filesystem:
			return refuse(nil, "cannot create '%s': parent is not a filesystem", to)
		}
		return f.move(from, to)
	})
}

// move renames a dataset and all that is below it.
func (f *ZFS) move(from, to string) error {
	moved := map[string]*node{}
	for old, n := range f.nodes {
		rest, below := strings.CutPrefix(old, from)
		if !below || rest != "" && rest[0] != '/' && rest[0] != '@' {
			continue
		}
		if len(to+rest) > maxDatasetName {
			return refuse(zfs.ErrBadValue, "cannot rename '%s': dataset name is too long", from)
		}
		moved[rest] = n
	}
	for rest := range moved {
		delete(f.nodes, from+rest)
	}
	for rest, n := range moved {
		n.name = to + rest
		f.nodes[n.name] = n
	}
	return nil
}
