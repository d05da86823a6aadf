package inprocess

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	configfsfake "github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/step"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// Node is the kernel of a node: its mount table, its sessions and its disks. It
// reaches a storage host as a real node does, only where that lets it in. Mount
// points are real directories.
type Node struct {
	ID ident.NodeID

	storage *storage.Host
	dir     string

	mu        sync.Mutex
	nextID    int
	nextMinor int
	mounts    []mount.Info
	behind    map[int]behind // by mount id
	supers    map[number]*super
	sessions  map[string]*session // by IQN
	busy      map[string]bool     // by mount point
	// violations are what a kernel would let pass and a driver must never do.
	violations []string
}

type number struct{ major, minor int }

// behind is what a line of the mount table stands for: a filesystem on the disk
// of a session, the device node of one, or an NFS export.
type behind struct {
	session *session
	node    bool
	share   string
}

// super is a filesystem, wherever it is mounted.
type super struct {
	readOnly bool
}

// root is the node's own disk; dev holds its device nodes.
var root = []mount.Info{
	{Source: "/dev/root", Target: "/", Root: "/", FSType: "ext4", Major: 259, Minor: 1, Options: []string{"rw"}, SuperOptions: []string{"rw"}, ID: 1},
	{Source: "udev", Target: "/dev", Root: "/", FSType: "devtmpfs", Minor: 6, Options: []string{"rw"}, SuperOptions: []string{"rw"}, ID: 2},
}

func newNode(t testing.TB, h *storage.Host, name, address string) *Node {
	n := &Node{
		ID:      ident.NodeID{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}},
		storage: h, dir: h.Dir("node"), nextID: 100, nextMinor: 16, mounts: slices.Clone(root),
		behind: map[int]behind{}, supers: map[number]*super{}, sessions: map[string]*session{}, busy: map[string]bool{},
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// Violations lists what was asked of the node and must never be.
func (n *Node) Violations() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.violations)
}

func (n *Node) violation(format string, args ...any) {
	n.violations = append(n.violations, fmt.Sprintf(format, args...))
}

// Mounted counts the mount lines at a path.
func (n *Node) Mounted(path string) (int, error) {
	here, err := n.At(context.Background(), path)
	return len(here), err
}

// Left lists what is mounted and attached.
func (n *Node) Left() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []string
	for _, i := range n.mounts[len(root):] {
		list = append(list, "mount "+i.Target)
	}
	for iqn := range n.sessions {
		list = append(list, "session "+iqn)
	}
	return list
}

// Hold makes a mount busy until the returned function is called, as a process
// with an open file there does.
func (n *Node) Hold(path string) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy[path] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.busy, path)
	}
}

// dataFile is the file of a workload.
const dataFile = "data"

// Write writes as a workload does that sees the volume at path, as a directory
// or as a device.
func (n *Node) Write(path string, block bool, data []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, b, err := n.seen(path, block)
	if err != nil {
		return err
	}
	if !block && n.readOnly(i) {
		return &os.PathError{Op: "write", Path: path, Err: syscall.EROFS}
	}
	if b.share != "" {
		granted, writable := n.storage.Granted(b.share, n.ID.Addresses[0])
		switch {
		case !granted:
			return &os.PathError{Op: "write", Path: path, Err: syscall.ESTALE}
		case !writable:
			return &os.PathError{Op: "write", Path: path, Err: syscall.EROFS}
		}
		return os.WriteFile(filepath.Join(b.share, dataFile), data, 0o644)
	}
	d, err := n.reach(b.session)
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	if block && (b.session.readOnly || d.ReadOnly) {
		return &os.PathError{Op: "write", Path: path, Err: syscall.EPERM}
	}
	n.storage.Disk(d.Device).Write(data)
	return nil
}

// Read returns the first size bytes of what Write wrote, or of a device.
func (n *Node) Read(path string, block bool, size int) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, b, err := n.seen(path, block)
	if err != nil {
		return nil, err
	}
	var data []byte
	if b.share != "" {
		if granted, _ := n.storage.Granted(b.share, n.ID.Addresses[0]); !granted {
			return nil, &os.PathError{Op: "read", Path: path, Err: syscall.ESTALE}
		}
		if data, err = os.ReadFile(filepath.Join(b.share, dataFile)); err != nil {
			return nil, err
		}
	} else {
		d, err := n.reach(b.session)
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		data = n.storage.Disk(d.Device).Data()
	}
	if block {
		data = append(data, make([]byte, size)...) // the rest of the device
	}
	if len(data) < size {
		return nil, fmt.Errorf("%s holds %d bytes, not %d", path, len(data), size)
	}
	return data[:size], nil
}

// seen is what a process sees at a path.
func (n *Node) seen(path string, block bool) (mount.Info, behind, error) {
	i, ok := n.top(path)
	if !ok {
		return i, behind{}, fmt.Errorf("nothing is mounted at %s", path)
	}
	b, ok := n.behind[i.ID]
	switch {
	case !ok:
		return i, b, fmt.Errorf("%s is no volume, but %s", path, i.Source)
	case b.node != block:
		return i, b, fmt.Errorf("%s is of the other kind", path)
	}
	return i, b, nil
}

// readOnly reports whether a mount refuses writes, by itself or by its
// filesystem.
func (n *Node) readOnly(i mount.Info) bool {
	sb := n.supers[number{i.Major, i.Minor}]
	return slices.Contains(i.Options, "ro") || sb != nil && sb.readOnly
}

// Alive implements node.Host.
func (n *Node) Alive(ctx context.Context, path string) error {
	ended, err := step.Begin(ctx, step.Child, "stat")
	if err != nil {
		return err
	}
	defer ended()
	n.mu.Lock()
	defer n.mu.Unlock()
	_, b, err := n.seen(path, false)
	if err != nil {
		return err
	}
	if b.share != "" {
		if granted, _ := n.storage.Granted(b.share, n.ID.Addresses[0]); !granted {
			return errors.New("stat: Stale file handle")
		}
		return nil
	}
	_, err = n.reach(b.session)
	return err
}

// Usage implements node.Host. Nothing is ever used.
func (n *Node) Usage(ctx context.Context, path string) (node.Usage, error) {
	if err := n.Alive(ctx, path); err != nil {
		return node.Usage{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	_, b, err := n.seen(path, false)
	if err != nil {
		return node.Usage{}, err
	}
	var size int64
	if b.share != "" {
		size, err = n.storage.ShareBytes(ctx, b.share)
	} else {
		var d configfsfake.Disk
		if d, err = n.reach(b.session); err == nil {
			size = n.storage.Disk(d.Device).FSBytes()
		}
	}
	all := node.Amount{Total: size, Available: size}
	return node.Usage{Bytes: all, Inodes: all}, err
}

// SetReadOnly implements node.Host.
func (n *Node) SetReadOnly(ctx context.Context, device string, readOnly bool) error {
	ended, err := step.Begin(ctx, step.Child, "blockdev")
	if err != nil {
		return err
	}
	defer ended()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sessionAt(device)
	if s == nil {
		return fmt.Errorf("blockdev: cannot open %s", device)
	}
	s.readOnly = readOnly
	return nil
}

// DeviceNumber implements node.Host.
func (n *Node) DeviceNumber(path string) (major, minor int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.top(path); ok && n.behind[i.ID].node {
		s := n.behind[i.ID].session
		return s.number.major, s.number.minor, nil
	}
	if s := n.sessionAt(path); s != nil {
		return s.number.major, s.number.minor, nil
	}
	return 0, 0, fmt.Errorf("%s is not a block device", path)
}

// BootID implements node.Host.
func (n *Node) BootID() (string, error) { return "boot-1", nil }

func (n *Node) top(target string) (mount.Info, bool) {
	for _, i := range slices.Backward(n.mounts) {
		if i.Target == target {
			return i, true
		}
	}
	return mount.Info{}, false
}

// within reports whether a path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
