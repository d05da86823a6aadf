// Package fake is OpenZFS in memory, as strict as the real one: it refuses what
// zfs(8) refuses, with the same causes and words, and lets pass what zfs lets
// pass, also where that is a trap (a shrinking volsize). The contract test of
// package zfs runs one table against both.
//
// It needs no root. Filesystems have a real directory, which is moved to the
// mount point when they are mounted; owners are only recorded.
package fake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// ZFS is one pool and what a storage host does with it. It is safe for
// concurrent use.
type ZFS struct {
	dir      string
	size     int64
	poolName string

	gate gate

	mu    sync.Mutex
	nodes map[string]*node // by full name, snapshots too
	txg   uint64
	guids uint64
	// fresh is how long a new zvol is busy with udev's look at it.
	fresh time.Duration
}

// New returns a host with one pool of sizeBytes whose root filesystem is
// mounted below dir, an empty directory. Datasets are mounted where `zfs` would
// mount them, with dir in place of "/".
func New(pool string, sizeBytes int64, dir string) *ZFS {
	f := &ZFS{dir: dir, size: sizeBytes, poolName: pool, nodes: map[string]*node{}, guids: 1 << 60, fresh: 20 * time.Millisecond}
	f.gate.state = "ONLINE"
	f.gate.resumed = make(chan struct{})
	close(f.gate.resumed)
	root := f.newNode(pool, zfs.Filesystem)
	root.local["mountpoint"] = filepath.Join(dir, pool)
	f.nodes[pool] = root
	if err := f.mount(root, root.local["mountpoint"]); err != nil {
		panic(fmt.Sprintf("fake zfs in %s: %v", dir, err)) // a test's mistake
	}
	return f
}

// node is a filesystem, a zvol or a snapshot.
type node struct {
	name string
	typ  zfs.Type // of the dataset itself, for a snapshot too
	// snapshot tells one from the dataset it was taken of.
	snapshot bool

	local, received map[string]string

	// data is what the dataset refers to; unique is the part of it that no
	// snapshot and no origin shares.
	data, unique int64
	// volBytes and blockBytes are of a zvol.
	volBytes, blockBytes int64
	blockSource          string
	// origin is the snapshot that this dataset was cloned from.
	origin *node
	// receiving is the snapshot that not all has come of.
	receiving *node

	created time.Time
	txg     uint64
	guid    uint64

	content   string // where the files are while it is not mounted
	mountedAt string
	atime     bool // of the mount
	root      zfs.Root
	encrypted bool // an encryption root, whose key is not loaded when locked
	locked    bool
	freshTill time.Time
	holds     []*Hold
	userRefs  int // of a snapshot, zfs-hold(8)
	deferred  bool
}

func (f *ZFS) newNode(name string, t zfs.Type) *node {
	f.txg++
	f.guids++
	n := &node{
		name: name, typ: t, local: map[string]string{}, received: map[string]string{},
		created: time.Now(), txg: f.txg, guid: f.guids,
		root: zfs.Root{Mode: 0o755},
	}
	if t == zfs.Filesystem {
		n.data, n.unique = emptyFilesystem, emptyFilesystem
		n.content = f.contentDir(n)
		if err := os.MkdirAll(n.content, 0o755); err != nil {
			panic(err) // a test's mistake: dir cannot be written to
		}
	} else {
		n.data, n.unique = emptyVolume, emptyVolume
	}
	return n
}

// What an untouched dataset refers to, in bytes, on disks with sectors of 4 KiB.
const (
	emptyFilesystem = 96 << 10
	emptyVolume     = 28 << 10
)

// Error is what zfs(8) says, and the cause that package zfs makes of it.
type Error struct {
	// Cause is one of package zfs, or nil.
	Cause error
	Text  string
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Cause }

func refuse(cause error, format string, args ...any) error {
	return &Error{Cause: cause, Text: fmt.Sprintf(format, args...)}
}

// find returns a dataset or snapshot, as every verb opens it first.
func (f *ZFS) find(name string) (*node, error) {
	n := f.nodes[name] // what could be no name does not exist either
	if n == nil {
		return nil, refuse(zfs.ErrNotExist, "cannot open '%s': dataset does not exist", name)
	}
	return n, nil
}

// findParent is find for a dataset that others lie below.
func (f *ZFS) findParent(name string) (*node, error) {
	n, err := f.find(name)
	if err != nil {
		return nil, refuse(zfs.ErrNoParent, "%s", err)
	}
	return n, nil
}

// Get implements volume.ZFS.
func (f *ZFS) Get(ctx context.Context, name string) (zfs.Dataset, error) {
	return do(ctx, f, "get", name, func() (zfs.Dataset, error) {
		n, err := f.find(name)
		if up := parent(name); err != nil && up != "" && f.nodes[up] == nil {
			return zfs.Dataset{}, refuse(zfs.ErrNoParent, "cannot open '%s': dataset does not exist", up)
		}
		if err != nil {
			return zfs.Dataset{}, err
		}
		return zfs.NewDataset(name, f.properties(n)), nil
	})
}

// GetWithParent implements volume.ZFS.
func (f *ZFS) GetWithParent(ctx context.Context, name string) (d, above zfs.Dataset, err error) {
	pair, err := do(ctx, f, "get", name, func() ([2]zfs.Dataset, error) {
		up, err := f.findParent(parent(name))
		if err != nil {
			return [2]zfs.Dataset{}, err
		}
		n, err := f.find(name)
		if err != nil {
			return [2]zfs.Dataset{}, err
		}
		return [2]zfs.Dataset{zfs.NewDataset(name, f.properties(n)), zfs.NewDataset(up.name, f.properties(up))}, nil
	})
	return pair[0], pair[1], err
}

// Children implements volume.ZFS.
func (f *ZFS) Children(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	return do(ctx, f, "children", parent, func() ([]zfs.Dataset, error) {
		p, err := f.findParent(parent)
		if err != nil {
			return nil, err
		}
		var list []zfs.Dataset
		for _, n := range f.children(p) {
			list = f.appendOwn(list, n)
		}
		return list, nil
	})
}

// appendOwn adds what is set on a dataset itself, if anything is.
func (f *ZFS) appendOwn(list []zfs.Dataset, n *node) []zfs.Dataset {
	own := map[string]zfs.Property{}
	for name, property := range f.properties(n) {
		if property.Source == "local" || property.Source == "received" {
			own[name] = property
		}
	}
	if len(own) == 0 {
		return list
	}
	return append(list, zfs.NewDataset(n.name, own))
}
