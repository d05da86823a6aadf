package fake

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// What follows is the rest of the world: an administrator, backup tools, nodes
// and power cuts. None of it counts as a call, and none of it fails or hangs by
// the faults above.

// Make is `zfs create`, by the administrator: a filesystem that is mounted,
// parents included.
func (f *ZFS) Make(name string, properties ...zfs.Setting) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := strings.Split(name, "/")
	for i := 2; i < len(parts); i++ {
		up := strings.Join(parts[:i], "/")
		if f.nodes[up] == nil {
			if err := f.makeMounted(zfs.Spec{Name: up}); err != nil {
				return err
			}
		}
	}
	return f.makeMounted(zfs.Spec{Name: name, Properties: properties})
}

func (f *ZFS) makeMounted(s zfs.Spec) error {
	n, err := f.make(s)
	if err != nil {
		return err
	}
	f.nodes[s.Name] = n
	dir, _, _ := f.value(n, "mountpoint")
	if canmount, _, _ := f.value(n, "canmount"); canmount != "on" || !strings.HasPrefix(dir, "/") || f.keyMissing(n) {
		return nil
	}
	return f.mount(n, dir)
}

// Bare makes a dataset as a power loss leaves it between the kernel's two steps:
// it exists, and no property is set. volumeBytes zero makes a filesystem.
func (f *ZFS) Bare(name string, volumeBytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.make(zfs.Spec{Name: name, VolumeBytes: volumeBytes, Thin: true})
	if err != nil {
		return err
	}
	n.freshTill = time.Time{}
	f.nodes[name] = n
	return nil
}

// SetFresh sets how long a new zvol is busy with udev; zero is not at all.
func (f *ZFS) SetFresh(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh = d
}

// Put sets a property, native or the user's, past the faults.
func (f *ZFS) Put(name, property, value string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	return f.set(n, zfs.Setting{Name: property, Value: value})
}

// Receive turns every local property of a dataset into a received one, as after
// a replication to another host.
func (f *ZFS) Receive(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	for property, value := range n.local {
		n.received[property] = value
	}
	n.local = map[string]string{}
	return nil
}

// TakeSnapshot is `zfs snapshot`, by a foreign tool.
func (f *ZFS) TakeSnapshot(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeSnapshots(zfs.SnapshotSpec{Names: []string{name}})
}

// MakeClone is `zfs clone` by another tool, unmounted.
func (f *ZFS) MakeClone(snapshot, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	spec := zfs.Spec{Name: name, Thin: true}
	if s := f.nodes[snapshot]; s != nil && s.typ == zfs.Volume {
		spec.VolumeBytes = s.volBytes
	}
	return f.clone(snapshot, spec)
}

// HoldSnapshot is `zfs hold`; the returned function is `zfs release`.
func (f *ZFS) HoldSnapshot(name string) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return nil, err
	}
	n.userRefs++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		n.userRefs--
		f.reap(n)
	}, nil
}

// Write adds bytes of data, and a file to a filesystem: EDQUOT above the
// refquota, ENOSPC when the pool is full.
func (f *ZFS) Write(name string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	if q := n.number("refquota"); q > 0 && n.data+bytes > q {
		return syscall.EDQUOT
	}
	if bytes > f.room(n)+max(0, n.number("refreservation")-n.unique) {
		return syscall.ENOSPC
	}
	n.data += bytes
	n.unique += bytes
	if n.typ == zfs.Volume {
		return nil
	}
	dir := n.mountedAt
	if dir == "" {
		dir = n.content
	}
	return os.WriteFile(filepath.Join(dir, "data"), []byte("written\n"), 0o644)
}

// Content returns the directory that holds a filesystem's files now, mounted or
// not.
func (f *ZFS) Content(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		return ""
	}
	if n.mountedAt != "" {
		return n.mountedAt
	}
	return n.content
}

// VolumeBytes returns the size of a zvol; zero for what is none.
func (f *ZFS) VolumeBytes(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		return n.volBytes
	}
	return 0
}

// RootOf returns owner and mode of a filesystem's root directory.
func (f *ZFS) RootOf(name string) zfs.Root {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		return n.root
	}
	return zfs.Root{}
}

// Names returns every filesystem, zvol and snapshot of the pool, sorted.
func (f *ZFS) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for name := range f.nodes {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// Reboot unmounts every volume and ends every hold, as a restart of the host
// does. What the administrator made with Make is mounted again, and so is
// everything with canmount=on and a path, as `zfs mount -a` does; with mount
// false nothing but the pool's root is.
func (f *ZFS) Reboot(mount bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name, n := range f.nodes {
		n.holds = nil
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) { // what lies below first
		if n := f.nodes[name]; n.mountedAt != "" {
			if err := f.unmount(n); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		n := f.nodes[name]
		dir, _, _ := f.value(n, "mountpoint")
		canmount, _, _ := f.value(n, "canmount")
		if n.snapshot || n.typ != zfs.Filesystem || canmount != "on" || !strings.HasPrefix(dir, "/") || f.keyMissing(n) || !mount && name != f.poolName {
			continue
		}
		if err := f.mount(n, dir); err != nil {
			return err
		}
	}
	return nil
}

// MountByHand mounts a filesystem past the faults; UnmountByHand unmounts it.
func (f *ZFS) MountByHand(name, dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	return f.mount(n, dir)
}

// UnmountByHand unmounts a filesystem past the faults and holds.
func (f *ZFS) UnmountByHand(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	if n.mountedAt == "" {
		return fmt.Errorf("%s is not mounted", name)
	}
	return f.unmount(n)
}

// Encrypt makes a dataset an encryption root, for itself and all below it.
func (f *ZFS) Encrypt(name string) error { return f.setKey(name, false) }

// LockKey takes the key away (`zfs unload-key`, or a reboot); Encrypt gives it
// back. Nothing below it may be mounted.
func (f *ZFS) LockKey(name string) error { return f.setKey(name, true) }

func (f *ZFS) setKey(name string, locked bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	if locked {
		for below, m := range f.nodes {
			if (below == name || strings.HasPrefix(below, name+"/")) && m.mountedAt != "" {
				return refuse(zfs.ErrBusy, "Key unload error: '%s' is busy.", name)
			}
		}
	}
	n.encrypted, n.locked = true, locked
	return nil
}

// encryptionRoot is the dataset whose key covers n, or nil.
func (f *ZFS) encryptionRoot(n *node) *node {
	for at := n; at != nil; at = f.nodes[parent(at.name)] {
		if at.encrypted {
			return at
		}
	}
	return nil
}

func (f *ZFS) keyMissing(n *node) bool {
	root := f.encryptionRoot(n)
	return root != nil && root.locked
}

// Hold is something that has a dataset open.
type Hold struct {
	kind   int
	client netip.Addr
	file   string
	open   bool
}

const (
	heldByProcess = iota
	heldByNFS
	heldByLVM
)

// HoldOpen makes a dataset busy: a process, another mount namespace or LIO has
// it open. The returned function ends that; Release does not.
func (f *ZFS) HoldOpen(name string) (func(), error) {
	return f.hold(name, &Hold{kind: heldByProcess})
}

// HoldNFS makes a filesystem busy with a v4 client's open file or delegation,
// which Release ends unless the client is alive.
func (f *ZFS) HoldNFS(name string, client netip.Addr, file string) (func(), error) {
	return f.hold(name, &Hold{kind: heldByNFS, client: client, file: file})
}

// HoldLVM makes a zvol busy with a logical volume that this host found on it,
// which Release ends unless it is open (mounted).
func (f *ZFS) HoldLVM(name, logicalVolume string, open bool) (func(), error) {
	return f.hold(name, &Hold{kind: heldByLVM, file: logicalVolume, open: open})
}

func (f *ZFS) hold(name string, h *Hold) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return nil, err
	}
	n.holds = append(n.holds, h)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		n.drop(h)
	}, nil
}

func (n *node) drop(h *Hold) {
	n.holds = slices.DeleteFunc(n.holds, func(other *Hold) bool { return other == h })
}
