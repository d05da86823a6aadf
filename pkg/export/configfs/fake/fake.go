// Package fake is a configfs in memory that is as strict as the kernel's: it
// refuses what the target subsystem (LIO) refuses, with the same errno, and
// lets pass what the kernel lets pass, also where that is a trap. The contract
// test of package configfs runs one table against both.
//
// It needs no root, so every package can test on it, and it answers what an
// initiator that logs in would get. An Injector fails or cuts off operations, of
// the fake and of the real one.
package fake

import (
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// FS is the configfs. It is safe for concurrent use.
type FS struct {
	mu      sync.Mutex
	root    *node
	devices map[string]*Device
	// listeners are of other processes, portals are the kernel's own with the
	// number of targets at each.
	listeners map[netip.AddrPort]bool
	portals   map[netip.AddrPort]int
}

var _ configfs.FS = (*FS)(nil)

// New returns a host with the target modules loaded: target/iscsi exists and is
// empty.
func New() *FS {
	f := Bare()
	f.LoadModules()
	f.root.children["target"].children["iscsi"] = f.newFabric(f.root.children["target"])
	return f
}

// Bare returns a host after its boot: configfs is mounted and empty.
func Bare() *FS {
	return &FS{root: newGroup(nil, ""), devices: map[string]*Device{}, listeners: map[netip.AddrPort]bool{}, portals: map[netip.AddrPort]int{}}
}

// LoadModules is modprobe target_core_mod target_core_iblock iscsi_target_mod:
// the directory target appears, and target/iscsi can be made.
func (f *FS) LoadModules() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root.children["target"] == nil {
		f.root.children["target"] = f.newSubsystem(f.root)
	}
}

// AddDevice makes a block device that a backstore can be enabled on.
func (f *FS) AddDevice(d Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices[d.Path] = &d
}

// RemoveDevice takes a device's name away. Backstores that have it open keep it.
func (f *FS) RemoveDevice(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.devices, path)
}

// Listen has another process listen at ADDRESS:PORT until the returned function
// is called.
func (f *FS) Listen(address string) func() {
	portal := netip.MustParseAddrPort(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[portal] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, portal)
	}
}

// Mkdir implements configfs.FS.
func (f *FS) Mkdir(p string) error {
	return f.do("mkdir", p, func() error {
		dir, err := f.parent(p)
		if err != nil {
			return err
		}
		name := path.Base(p)
		if dir.children[name] != nil {
			return syscall.EEXIST
		}
		if dir.mkdir == nil {
			return syscall.EPERM
		}
		child, err := dir.mkdir(name)
		if err != nil {
			return err
		}
		dir.children[name] = child
		return nil
	})
}

// Rmdir implements configfs.FS.
func (f *FS) Rmdir(p string) error {
	return f.do("rmdir", p, func() error {
		n, err := f.lookupLink(p)
		if err != nil {
			return err
		}
		if n.kind != configfs.Directory {
			return syscall.ENOTDIR
		}
		if n.builtin || n.parent == nil {
			return syscall.EPERM
		}
		if err := n.removable(); err != nil {
			return err
		}
		delete(n.parent.children, n.name)
		if n.drop != nil {
			n.drop()
		}
		return nil
	})
}

// Write implements configfs.FS.
func (f *FS) Write(p, value string) error {
	return f.do("write", p, func() error {
		if err := configfs.CheckValue(value); err != nil {
			return err
		}
		n, err := f.lookup(p)
		if err != nil {
			return err
		}
		if n.kind == configfs.Directory {
			return syscall.EISDIR
		}
		if n.store == nil {
			return syscall.EACCES
		}
		return n.store(value)
	})
}

// Read implements configfs.FS.
func (f *FS) Read(p string) (string, error) {
	var value string
	err := f.do("read", p, func() error {
		n, err := f.lookup(p)
		if err != nil {
			return err
		}
		if n.kind == configfs.Directory {
			return syscall.EISDIR
		}
		if n.show == nil {
			return syscall.EACCES
		}
		value = strings.TrimSuffix(n.show(), "\n")
		return nil
	})
	return value, err
}

// Symlink implements configfs.FS.
func (f *FS) Symlink(target, p string) error {
	return f.do("symlink", p, func() error {
		dir, err := f.parent(p)
		if err != nil {
			return err
		}
		name := path.Base(p)
		if dir.children[name] != nil {
			return syscall.EEXIST
		}
		if dir.allow == nil {
			return syscall.EPERM
		}
		to, err := f.lookup(target)
		if err != nil {
			return err
		}
		if to.kind != configfs.Directory {
			return syscall.ENOTDIR
		}
		if err := dir.allow(to); err != nil {
			return err
		}
		to.links++
		dir.children[name] = &node{name: name, kind: configfs.Link, parent: dir, to: to}
		return nil
	})
}

// Unlink implements configfs.FS.
func (f *FS) Unlink(p string) error {
	return f.do("unlink", p, func() error {
		n, err := f.lookupLink(p)
		if err != nil {
			return err
		}
		switch n.kind {
		case configfs.Directory:
			return syscall.EISDIR
		case configfs.Attribute:
			return syscall.EPERM
		}
		delete(n.parent.children, n.name)
		n.to.links--
		if n.parent.unlinked != nil {
			n.parent.unlinked(n.to)
		}
		return nil
	})
}

// List implements configfs.FS.
func (f *FS) List(p string) ([]configfs.Entry, error) {
	var list []configfs.Entry
	err := f.do("list", p, func() error {
		n, err := f.lookup(p)
		if err != nil {
			return err
		}
		if n.kind != configfs.Directory {
			return syscall.ENOTDIR
		}
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			c := n.children[name]
			e := configfs.Entry{Name: name, Kind: c.kind}
			if c.kind == configfs.Link {
				e.Target = c.to.path()
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}

// do runs one operation under the lock and gives its error the shape that
// configfs.FS promises.
func (f *FS) do(name, p string, fn func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := error(syscall.EINVAL)
	if fs.ValidPath(p) {
		err = fn()
	}
	if err != nil {
		return &fs.PathError{Op: name, Path: path.Join(configfs.Root, p), Err: err}
	}
	return nil
}
