package fake

import (
	"path"
	"strings"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// node is an item, group, attribute or link, with the operations that its kind
// gives it. What is nil the kernel refuses.
type node struct {
	name   string
	kind   configfs.Kind
	parent *node

	// of a directory
	children map[string]*node
	builtin  bool // a default group, made and removed with its parent
	links    int  // how many links name it
	mkdir    func(name string) (*node, error)
	allow    func(target *node) error // may a link to target be made in it
	unlinked func(target *node)
	drop     func()
	item     any // what the kernel has behind it

	// of an attribute
	show  func() string
	store func(value string) error

	// of a link
	to *node
}

func newGroup(parent *node, name string) *node {
	return &node{name: name, kind: configfs.Directory, parent: parent, children: map[string]*node{}}
}

// group adds a default group.
func (n *node) group(name string) *node {
	g := newGroup(n, name)
	g.builtin = true
	n.children[name] = g
	return g
}

// attribute adds a file; a nil show or store makes it write- or read-only.
func (n *node) attribute(name string, show func() string, store func(string) error) {
	n.children[name] = &node{name: name, kind: configfs.Attribute, parent: n, show: show, store: store}
}

// constants adds attributes that only tell.
func (n *node) constants(values map[string]string) {
	for name, v := range values {
		n.attribute(name, func() string { return v }, nil)
	}
}

// number adds an attribute whose value is checked and kept.
func (n *node) number(name string, value *string, check func(string) (string, error)) {
	n.attribute(name, func() string { return *value }, func(s string) error {
		v, err := check(s)
		if err == nil {
			*value = v
		}
		return err
	})
}

// removable is configfs_detach_prep in fs/configfs/dir.c: a link to the item
// or to one of its default groups is EBUSY, and anything that was made below
// it is ENOTEMPTY.
func (n *node) removable() error {
	if n.links > 0 {
		return syscall.EBUSY
	}
	for _, c := range n.children {
		switch {
		case c.kind == configfs.Attribute:
		case c.builtin:
			if err := c.removable(); err != nil {
				return err
			}
		default:
			return syscall.ENOTEMPTY
		}
	}
	return nil
}

func (n *node) path() string {
	if n.parent == nil {
		return "."
	}
	return path.Join(n.parent.path(), n.name)
}

// lookup finds what a path names; links on the way and at its end are followed.
func (f *FS) lookup(p string) (*node, error) {
	n, err := f.lookupLink(p)
	if err == nil && n.kind == configfs.Link {
		n = n.to
	}
	return n, err
}

// lookupLink is lookup without following a link at the end.
func (f *FS) lookupLink(p string) (*node, error) {
	n := f.root
	if p == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(p, "/") {
		if n.kind == configfs.Link {
			n = n.to
		}
		if n.kind != configfs.Directory {
			return nil, syscall.ENOTDIR
		}
		if len(part) > nameMax {
			return nil, syscall.ENAMETOOLONG
		}
		if n = n.children[part]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

const nameMax = 255 // NAME_MAX

// parent finds the directory in which p is to be made.
func (f *FS) parent(p string) (*node, error) {
	if p == "." {
		return nil, syscall.EEXIST
	}
	n, err := f.lookup(path.Dir(p))
	if err != nil {
		return nil, err
	}
	if n.kind != configfs.Directory {
		return nil, syscall.ENOTDIR
	}
	if len(path.Base(p)) > nameMax {
		return nil, syscall.ENAMETOOLONG
	}
	return n, nil
}
