package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
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
	if err := checkNewName(s.Name); err != nil {
		return nil, err
	}
	values, err := newValues(t, s.Name, s.Properties)
	if err != nil {
		return nil, err
	}
	up, err := f.place(s.Name)
	if err != nil {
		return nil, err
	}
	if f.keyMissing(up) { // a clone has its origin's key, and needs none to be made
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
			values["refreservation"] = auto
		}
		n.freshTill = time.Now().Add(f.fresh)
	}
	n.local = values
	n.resolveAuto()
	return n, f.fitsNew(n, up)
}

func checkNewName(name string) error {
	err := checkName(name)
	if err == nil && strings.Contains(name, "@") {
		return refuse(zfs.ErrBadValue, "cannot create '%s': snapshot delimiter '@' is not expected here", name)
	}
	if err != nil {
		return refuse(zfs.ErrBadValue, "cannot create '%s': %s", name, err)
	}
	return nil
}

// newValues are the properties that a dataset is made with.
func newValues(t zfs.Type, name string, list []zfs.Setting) (map[string]string, error) {
	values := map[string]string{}
	for _, p := range list {
		if _, twice := values[p.Name]; twice {
			return nil, refuse(zfs.ErrBadValue, "property '%s' specified multiple times", p.Name)
		}
		v, err := checkProperty(t, p)
		if err != nil {
			return nil, refuse(zfs.ErrBadValue, "cannot create '%s': %s", name, err)
		}
		values[p.Name] = v
	}
	return values, nil
}

// place returns the parent that a new dataset can be made below.
func (f *ZFS) place(name string) (*node, error) {
	up := f.nodes[parent(name)]
	switch {
	case parent(name) == "":
		return nil, refuse(zfs.ErrNoParent, "cannot create '%s': missing dataset name", name)
	case up == nil:
		return nil, refuse(zfs.ErrNoParent, "cannot create '%s': parent does not exist", name)
	case up.typ != zfs.Filesystem:
		return nil, refuse(nil, "cannot create '%s': parent is not a filesystem", name)
	case f.nodes[name] != nil:
		return nil, refuse(zfs.ErrExists, "cannot create '%s': dataset already exists", name)
	case strings.Count(name, "/") >= maxNesting:
		return nil, refuse(zfs.ErrBadValue, "cannot create '%s': name is too deep", name)
	}
	return up, nil
}

// fitsNew refuses a dataset that needs more than its parent or its own quotas
// leave.
func (f *ZFS) fitsNew(n, up *node) error {
	reserved := max(n.number("refreservation"), n.number("reservation"))
	room := f.room(up)
	if q := n.number("quota"); q > 0 {
		room = min(room, q)
	}
	q := n.number("refquota")
	if max(reserved, n.unique) > room || q > 0 && (q < n.data || q < n.number("refreservation")) {
		return refuse(zfs.ErrNoSpace, "cannot create '%s': out of space", n.name)
	}
	return nil
}

// resolveAuto puts the number for refreservation=auto.
func (n *node) resolveAuto() {
	if n.local["refreservation"] == auto {
		n.local["refreservation"] = bytesText(volumeReservation(n.volBytes, n.blockBytes))
	}
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
	if strings.Contains(name, "@") {
		n, err := f.findSnapshot(name)
		if err != nil {
			return err
		}
		return f.destroySnapshot(n)
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
	if n.origin != nil {
		f.reap(n.origin)
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

// SetAll implements volume.ZFS.
func (f *ZFS) SetAll(ctx context.Context, name string, list []zfs.Setting) error {
	return do0(ctx, f, "set", name, func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		return f.set(n, list...)
	})
}

// set is zfs_prop_set_list: libzfs refuses what is impossible before anything is
// set, and the kernel goes on after what it refuses, which it tries once more
// when the rest is set.
func (f *ZFS) set(n *node, list ...zfs.Setting) error {
	values := map[string]string{}
	for _, s := range list {
		if _, twice := values[s.Name]; twice {
			return refuse(zfs.ErrBadValue, "property '%s' specified multiple times", s.Name)
		}
		v, err := n.settable(s)
		if err != nil {
			return refuse(zfs.ErrBadValue, "cannot set property for '%s': %s", n.name, err)
		}
		values[s.Name] = v
	}
	volBytes, synthetic := n.volBytes, n.synthesize(values)
	var first error
	for range 2 {
		first = nil
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if err := f.apply(n, name, values[name]); err != nil {
				first = cmp.Or(first, err)
				continue
			}
			delete(values, name)
		}
	}
	if first != nil && synthetic {
		n.volBytes = volBytes // libzfs sets it back
	}
	return first
}

// settable returns a value in the form that is kept.
func (n *node) settable(s zfs.Setting) (string, error) {
	v, err := checkProperty(n.typ, s)
	switch bytes, _ := strconv.ParseInt(v, 10, 64); {
	case err != nil:
		return "", err
	case n.snapshot && !userProperty(s.Name):
		return "", errors.New("this property can not be modified for snapshots")
	case natives[s.Name].once:
		return "", fmt.Errorf("'%s' is readonly", s.Name)
	case s.Name == "volsize" && bytes == 0:
		return "", errors.New("'volsize' cannot be zero")
	case s.Name == "volsize" && bytes%n.blockBytes != 0:
		return "", fmt.Errorf("'volsize' must be a multiple of volume block size (%d)", n.blockBytes)
	}
	return v, nil
}

// synthesize puts the number for refreservation=auto, and reports whether it
// lets the reservation of a thick zvol go along with its size.
func (n *node) synthesize(values map[string]string) bool {
	volBytes := n.volBytes
	synthetic := false
	if size, ok := values["volsize"]; ok {
		volBytes, _ = strconv.ParseInt(size, 10, 64)
		_, given := values["refreservation"]
		have := n.number("refreservation")
		if synthetic = !given && have > 0 && have == volumeReservation(n.volBytes, n.blockBytes); synthetic {
			values["refreservation"] = auto
		}
	}
	if values["refreservation"] == auto {
		values["refreservation"] = bytesText(volumeReservation(volBytes, n.blockBytes))
	}
	return synthetic
}

// apply is what the kernel does with one value.
func (f *ZFS) apply(n *node, name, value string) error {
	bytes, _ := strconv.ParseInt(value, 10, 64)
	switch name {
	case "volsize":
		if n.receiving != nil {
			return refuse(zfs.ErrBusy, "cannot set property for '%s': dataset is busy", n.name)
		}
		n.volBytes = bytes // what is past the end is lost without a question
		return nil
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
	n.local[name] = value
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
