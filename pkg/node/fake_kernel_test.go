package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// kernel is what outlives the daemon: the mount table, the superblocks, the
// sessions, the disks and exports of a storage host. It refuses what the real
// ones refuse, and notes as a violation what they would let pass and a driver
// must never do. Mount points are real directories of a temporary one.
type kernel struct {
	t   testing.TB
	dir string

	mu         sync.Mutex
	boot       string
	nextID     int
	nextMinor  int
	mounts     []mount.Info
	nodes      map[int]number // by mount id: what a bound device node is
	supers     map[number]*super
	luns       map[string]*lun    // by IQN
	sessions   map[string]*device // by IQN
	records    map[string]string  // node records: initiators by IQN
	revived    chan struct{}      // closed when the stuck servers answer
	exports    map[string]*export // by SERVER:/SHARE
	busy       map[string]bool    // by mount point
	lazy       bool               // an unmount says yes and does nothing
	vanish     string             // a mount that goes away just before the next bind
	violations []string

	// Sabotage of side effects.
	effects []string
	mode    sabotage
	at      int
	// trigger and triggerCount stand for `at`: the n-th effect of a kind.
	trigger      string
	triggerCount int
	hangMkfs     bool
	dead         bool
}

type super struct {
	fsType string
	ro     bool
	// dead: every access ends in an error.
	dead   bool
	lun    *lun
	export *export
}

type lun struct {
	number int
	serial string
	chap   string // the password, or "" for none
	// content is "" for blank, a filesystem's type, or anything else.
	content   string
	uuid      string
	size      int64
	fsSize    int64
	protected bool
	journal   bool // needs a replay
	damaged   bool // fsck cannot repair it
	readError bool
	errors    int64
	late      int   // rescans that still show the old size
	refuse    error // of a login
	hang      bool
}

type device struct {
	number number
	path   string
	lun    *lun
	ro     bool
	// size is what the kernel read when it last asked the disk.
	size int64
	// initiator logged in; opened says that a process has the disk open, and
	// stuck that its target does not answer a logout.
	initiator     string
	opened, stuck bool
}

type export struct {
	hang, stale, refuse bool
	size                int64
}

// sabotage is what happens at side effect number `at`.
type sabotage int

const (
	none sabotage = iota
	failBefore
	failAfter
	crashBefore
	crashAfter
)

var errSabotage = errors.New("sabotaged")

// crash is what a daemon that is killed there panics with.
type crash struct{}

func newKernel(t testing.TB) *kernel {
	k := &kernel{
		t: t, dir: t.TempDir(), boot: "boot-1", nextID: 100, nextMinor: 16,
		nodes: map[int]number{}, supers: map[number]*super{}, luns: map[string]*lun{},
		sessions: map[string]*device{}, exports: map[string]*export{}, busy: map[string]bool{}, records: map[string]string{}, revived: make(chan struct{}),
	}
	if err := os.MkdirAll(filepath.Join(k.dir, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	k.mounts = []mount.Info{
		{Source: "/dev/root", Target: "/", Root: "/", FSType: "ext4", Major: 259, Minor: 1, Options: []string{"rw"}, SuperOptions: []string{"rw"}, ID: 1},
		{Source: "udev", Target: "/dev", Root: "/", FSType: "devtmpfs", Major: 0, Minor: 6, Options: []string{"rw"}, SuperOptions: []string{"rw"}, ID: 2},
	}
	return k
}

// effect does a side effect, unless it is the one that is sabotaged.
func (k *kernel) effect(what string, fn func() error) error {
	if k.dead {
		panic(crash{})
	}
	k.effects = append(k.effects, what)
	hit := k.mode != none && len(k.effects) == k.at
	if k.mode != none && k.trigger != "" && strings.HasPrefix(what, k.trigger) {
		k.triggerCount--
		hit = k.triggerCount == 0
	}
	if hit && k.mode == failBefore {
		return fmt.Errorf("%s: %w", what, errSabotage)
	}
	if hit && k.mode == crashBefore {
		k.dead = true
		panic(crash{})
	}
	err := fn()
	if hit && k.mode == crashAfter {
		k.dead = true
		panic(crash{})
	}
	if hit && k.mode == failAfter && err == nil {
		err = fmt.Errorf("%s: %w", what, errSabotage)
	}
	return err
}

func (k *kernel) violation(format string, args ...any) {
	k.violations = append(k.violations, fmt.Sprintf(format, args...))
}

func (k *kernel) Mounts(ctx context.Context) ([]mount.Info, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return k.table(), nil
}

// table is the mount table with the state of the superblocks as it is now.
func (k *kernel) table() []mount.Info {
	table := slices.Clone(k.mounts)
	for n := range table {
		i := &table[n]
		if sb := k.supers[number{i.Major, i.Minor}]; sb != nil {
			i.SuperOptions = []string{"rw"}
			if sb.ro {
				i.SuperOptions = []string{"ro"}
			}
		}
		if node, ok := k.nodes[i.ID]; ok && k.deviceOf(node) == nil && !strings.HasSuffix(i.Root, "//deleted") {
			i.Root += "//deleted"
		}
	}
	return table
}

func (k *kernel) At(ctx context.Context, target string) ([]mount.Info, error) {
	table, err := k.Mounts(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(table, func(i mount.Info) bool { return i.Target != target }), nil
}

func (k *kernel) deviceOf(n number) *device {
	for _, d := range k.sessions {
		if d.number == n {
			return d
		}
	}
	return nil
}

func (k *kernel) deviceAt(path string) *device {
	for _, d := range k.sessions {
		if d.path == path {
			return d
		}
	}
	return nil
}

func (k *kernel) Mount(ctx context.Context, source, target, fsType string, options, sensitive []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.effect("mount "+fsType, func() error {
		if st, err := os.Stat(target); err != nil || !st.IsDir() {
			return fault.New(fault.Precondition, "mount point %s does not exist", target)
		}
		all := append(slices.Clone(options), sensitive...)
		has := func(o string) bool { return slices.Contains(all, o) }
		if fsType == "nfs" {
			return k.mountExport(ctx, source, target, has("ro"))
		}
		d := k.deviceAt(source)
		switch {
		case d == nil:
			return fault.New(fault.Precondition, "%s: no such device", source)
		case d.lun.content != fsType:
			return fault.New(fault.Precondition, "%s: wrong fs type, bad superblock", source)
		case (d.lun.protected || d.ro) && !has("ro"):
			return fault.New(fault.Precondition, "%s is write-protected", source)
		case d.lun.protected && d.lun.journal && !has("noload") && !has("norecovery"):
			return fault.New(fault.Precondition, "%s: cannot replay the journal", source)
		}
		sb := k.supers[d.number]
		if sb == nil {
			for _, other := range k.supers {
				if fsType == "xfs" && other.lun != nil && other.lun.uuid == d.lun.uuid && !has("nouuid") {
					return fault.New(fault.Precondition, "%s: duplicate uuid", source)
				}
			}
			sb = &super{fsType: fsType, ro: has("ro"), lun: d.lun}
			k.supers[d.number] = sb
		} else if sb.ro != has("ro") {
			return fault.New(fault.Precondition, "%s: already mounted or mount point busy", source)
		}
		if !sb.ro {
			d.lun.journal = true // until it is unmounted
		}
		k.add(mount.Info{Source: source, Target: target, Root: "/", FSType: fsType, Major: d.number.major, Minor: d.number.minor}, has("ro"))
		return nil
	})
}

func (k *kernel) mountExport(ctx context.Context, source, target string, ro bool) error {
	e := k.exports[source]
	switch {
	case e == nil:
		return fault.New(fault.Precondition, "%s: No such file or directory", source)
	case e.hang:
		k.mu.Unlock()
		<-ctx.Done()
		k.mu.Lock()
		return fmt.Errorf("mount: %w", ctx.Err())
	case e.refuse:
		return fault.New(fault.Precondition, "%s: access denied by server", source)
	case e.stale:
		return fault.New(fault.Unavailable, "%s: Stale file handle", source)
	}
	var n number
	for have, sb := range k.supers {
		if sb.export == e && sb.ro == ro && !sb.dead {
			n = have
		}
	}
	if n == (number{}) {
		k.nextMinor++
		n = number{0, k.nextMinor}
		k.supers[n] = &super{fsType: "nfs4", ro: ro, export: e}
	}
	k.add(mount.Info{Source: source, Target: target, Root: "/", FSType: "nfs4", Major: n.major, Minor: n.minor}, ro)
	return nil
}

func (k *kernel) add(i mount.Info, ro bool) int {
	k.nextID++
	i.ID = k.nextID
	i.Options = []string{"rw", "relatime"}
	if ro {
		i.Options = []string{"ro", "relatime"}
	}
	if i.SuperOptions == nil {
		i.SuperOptions = []string{"rw"}
	}
	k.mounts = append(k.mounts, i)
	return i.ID
}

func (k *kernel) top(target string) (mount.Info, bool) {
	for n := len(k.mounts) - 1; n >= 0; n-- {
		if k.mounts[n].Target == target {
			return k.mounts[n], true
		}
	}
	return mount.Info{}, false
}

func (k *kernel) Bind(ctx context.Context, source, target string, readOnly bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.effect("bind", func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		from, err := os.Stat(source)
		if err != nil {
			return fault.New(fault.Precondition, "bind: source %s does not exist", source)
		}
		to, err := os.Stat(target)
		if err != nil || from.IsDir() != to.IsDir() {
			return fault.New(fault.Precondition, "bind: %s does not exist, or is of the other kind than %s", target, source)
		}
		if k.vanish != "" {
			k.remove(k.vanish)
			k.vanish = ""
		}
		if d := k.deviceAt(source); d != nil {
			id := k.add(mount.Info{Source: "udev", Target: target, Root: "/" + filepath.Base(source), FSType: "devtmpfs", Minor: 6}, readOnly)
			k.nodes[id] = d.number
			return nil
		}
		i, ok := k.top(source)
		if !ok {
			// A plain directory: the root disk shows at the target.
			i = mount.Info{Source: "/dev/root", Root: source, FSType: "ext4", Major: 259, Minor: 1, Options: []string{"rw"}}
		}
		i.Target = target
		k.add(i, readOnly || slices.Contains(i.Options, "ro"))
		return nil
	})
}

func (k *kernel) Unmount(ctx context.Context, target string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.effect("unmount", func() error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case k.busy[target]:
			return fault.New(fault.Precondition, "%s is still in use", target)
		case !k.lazy:
			k.remove(target)
		}
		return nil
	})
}

// remove takes away the mounts at target, and superblocks with their last one.
func (k *kernel) remove(target string) {
	k.mounts = slices.DeleteFunc(k.mounts, func(i mount.Info) bool {
		if i.Target == target {
			delete(k.nodes, i.ID)
		}
		return i.Target == target
	})
	for n, sb := range k.supers {
		if !slices.ContainsFunc(k.mounts, func(i mount.Info) bool { return number{i.Major, i.Minor} == n }) {
			if sb.lun != nil && !sb.ro && !sb.dead {
				sb.lun.journal = false
			}
			delete(k.supers, n)
		}
	}
}

// lines are the mount lines at a path.
func (k *kernel) lines(target string) int {
	at, err := k.At(context.Background(), target)
	if err != nil {
		k.t.Fatal(err)
	}
	return len(at)
}

// foreignDisk is a mount of a disk with the first number that disks get.
func (k *kernel) foreignDisk(target string) mount.Info {
	k.nextMinor += 16
	return mount.Info{Source: "/dev/sdb", Target: target, Root: "/", FSType: "ext4", Major: 8, Minor: 16}
}

// foreign mounts something that is not the driver's.
func (k *kernel) foreign(target string) {
	k.add(mount.Info{Source: "/dev/vdb", Target: target, Root: "/", FSType: "ext4", Major: 254, Minor: 16}, false)
}

// stack mounts once more what is at target.
func (k *kernel) stack(target string) {
	i, ok := k.top(target)
	if !ok {
		k.t.Fatalf("nothing is mounted at %s", target)
	}
	node, isNode := k.nodes[i.ID]
	id := k.add(i, slices.Contains(i.Options, "ro"))
	if isNode {
		k.nodes[id] = node
	}
}

// emergency makes the filesystem mounted at target read-only, as the kernel
// does after an error of its disk.
func (k *kernel) emergency(target string) {
	i, _ := k.top(target)
	sb := k.supers[number{i.Major, i.Minor}]
	if sb == nil {
		k.t.Fatalf("no filesystem at %s", target)
	}
	sb.ro, sb.dead = true, true
}

// drop ends a session behind the driver's back: the disk is gone, and what was
// mounted from it is dead.
func (k *kernel) drop(iqn string) {
	d := k.sessions[iqn]
	if d == nil {
		k.t.Fatalf("no session with %s", iqn)
	}
	if sb := k.supers[d.number]; sb != nil {
		sb.dead = true
	}
	delete(k.sessions, iqn)
	if err := os.Remove(d.path); err != nil {
		k.t.Fatal(err)
	}
}

// reboot forgets what a kernel forgets.
func (k *kernel) reboot() {
	for iqn := range k.sessions {
		k.drop(iqn)
	}
	k.mounts = k.mounts[:2]
	k.nodes, k.supers = map[int]number{}, map[number]*super{}
	k.nextMinor = 16
	k.boot += "+"
}
