// Package volume is the domain on the storage host: volumes, their publication
// to nodes, and the promise that a repeated call finds what the first one left.
// The truth is in ZFS user properties; the kernel's exports are a projection of
// them. It knows no protobuf and no gRPC.
package volume

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/publish"
	"github.com/tarn-csi/tarn/pkg/pulse"
	"github.com/tarn-csi/tarn/pkg/release"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// The protocols over which a volume is served.
const (
	NFS   = publish.NFS
	ISCSI = publish.ISCSI
)

// ZFS is what the service needs of pkg/zfs.
type ZFS interface {
	Datasets
	Snapshots
	// Inventory lists everything below parent, whose it may be, with
	// zfs.InventoryProperties and one command.
	Inventory(ctx context.Context, parent string) ([]zfs.Dataset, error)
	// Holders returns the filesystems and zvols of every imported pool on which a
	// user property is set, by its value, with one command.
	Holders(ctx context.Context, property string) (map[string]string, error)
}

// Datasets reads and changes filesystems and zvols, and what both they and
// snapshots have.
type Datasets interface {
	Get(ctx context.Context, name string) (zfs.Dataset, error)
	Children(ctx context.Context, parent string) ([]zfs.Dataset, error)
	Create(ctx context.Context, s zfs.Spec) error
	Destroy(ctx context.Context, name string) error
	Set(ctx context.Context, name string, s zfs.Setting) error
	Inherit(ctx context.Context, name, property string) error
	Rename(ctx context.Context, from, to string) error
	Attributes
}

// Attributes is what a change of an existing volume needs of pkg/zfs.
type Attributes interface {
	// GetWithParent reads a dataset and the one above it with one command.
	GetWithParent(ctx context.Context, name string) (d, above zfs.Dataset, err error)
	// SetAll sets properties in that order with one command; after an error some
	// of them may be set.
	SetAll(ctx context.Context, name string, list []zfs.Setting) error
}

// Snapshots takes, finds and ends snapshots.
type Snapshots interface {
	Snapshot(ctx context.Context, s zfs.SnapshotSpec) error
	Snapshots(ctx context.Context, parent string) ([]zfs.Dataset, error)
	// SnapshotUses lists all snapshots below parent, foreign ones too, with what
	// keeps them.
	SnapshotUses(ctx context.Context, parent string) ([]zfs.Dataset, error)
	Clone(ctx context.Context, snapshot string, s zfs.Spec) error
	DestroyLater(ctx context.Context, snapshot string) error
	// Copy goes on with what a call for the same was cut off from.
	Copy(ctx context.Context, snapshot string, s zfs.Spec) error
	// DropCopy destroys what Copy has not finished.
	DropCopy(ctx context.Context, dataset string) error
}

// Host is what the service needs of the storage host beside ZFS commands.
type Host interface {
	// Available returns the bytes that can be written below a dataset.
	Available(ctx context.Context, dataset string) (int64, error)
	Mounter
	// SetRoot gives a mounted filesystem's root its owner and mode, if it is
	// still as ZFS made it: empty, of root, 0755.
	SetRoot(ctx context.Context, dir string, r zfs.Root) error
	// Release ends what keeps a volume from being unmounted or destroyed and
	// serves nobody any more: NFS state of clients without a publication, LVM
	// mappings that the host itself put on a zvol. It names what it cannot end.
	Release(ctx context.Context, h release.Held) error
	// LooksEmpty reports that an unmarked dataset holds no data at all.
	LooksEmpty(ctx context.Context, d zfs.Dataset) (bool, error)
	Watch
}

// Mounter mounts filesystems on the storage host.
type Mounter interface {
	// MountedAt returns where a filesystem is mounted; false when it is not.
	MountedAt(ctx context.Context, dataset string) (string, bool, error)
	Mount(ctx context.Context, dataset, dir string, atime bool) error
	// Remount changes whether a mounted filesystem notes the times of reads.
	Remount(ctx context.Context, dir string, atime bool) error
	// Unmount fails with zfs.ErrBusy while the filesystem is in use.
	Unmount(ctx context.Context, dir string) error
}

// Config is what a Service is made of.
type Config struct {
	// Driver is the driver's name, which owns the parents.
	Driver string
	Pools  []PoolConfig
	Naming ident.Naming
	// MasterKey derives CHAP passwords; needed when a pool's mode is derived.
	MasterKey chap.Key
	// NodeNetworks restricts node addresses; empty allows all.
	NodeNetworks []netip.Prefix
	// Exporters by protocol; a protocol without one is not offered.
	Exporters map[string]export.Exporter
	ZFS       ZFS
	Host      Host
	Secrets   SecretStore
	// Devices is for Adopt alone.
	Devices Devices
	// Leavings is for Orphans alone; nil where the host is no node.
	Leavings Leavings
	// DeleteForeignSnapshots lets the driver destroy other tools' snapshots of a
	// deleted volume, once nothing else of it is left.
	DeleteForeignSnapshots bool
	// Operation bounds a call that changes a pool or a kernel table.
	Operation time.Duration
	// Rest is the pause between two reconciles when everything is up.
	Rest time.Duration
	// LockDir holds one lock file a parent dataset.
	LockDir string
	// Passive services only look, beside the one that holds the parents: no key
	// is needed.
	Passive bool
	Log     logrus.FieldLogger
}

// PoolConfig is one pool of the configuration.
type PoolConfig struct {
	// Name is the pool's name in volume ids and parameters.
	Name string
	// Parent is the dataset under which volumes are made. It must exist.
	Parent string
	// Addresses are where this host serves the pool.
	Addresses []netip.Addr
	// ISCSIPort is the port of the iSCSI portals.
	ISCSIPort uint16
	// CHAP is how its iSCSI targets authenticate nodes.
	CHAP chap.Mode
}

// SecretStore keeps the CHAP pair of a publication whose mode is secrets: the
// only state outside ZFS, since no orchestrator repeats a publish after a
// reboot.
type SecretStore interface {
	Put(uuid, node string, c chap.Credentials) error
	// Get returns false when nothing is kept.
	Get(uuid, node string) (chap.Credentials, bool, error)
	// Remove succeeds when nothing is kept.
	Remove(uuid, node string) error
}

// Service serves the volumes of every configured pool.
type Service struct {
	cfg   Config
	ops   *op.Table
	pools map[string]*pool
	order []string

	published published
	touched   touched
	told      told
	foreign   foreign

	// stopping ends when copies are to be cut off.
	stopping context.Context
	stop     context.CancelFunc

	mu      sync.Mutex
	started bool
	servers error // why a protocol's server does not work, as the last round saw it
	last    Round

	pulse *pulse.Pulse
}

// New returns a service. Nothing is read or changed before Start.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, ops: op.NewTable(), pools: map[string]*pool{}}
	s.pulse = pulse.New("the reconcile", (maxPatience+1)*cfg.Operation+pulseGrace)
	s.stopping, s.stop = context.WithCancel(context.Background())
	for _, p := range cfg.Pools {
		if s.pools[p.Name] != nil {
			return nil, fault.New(fault.Invalid, "pool %q is configured twice", p.Name)
		}
		if p.CHAP == chap.Derived && cfg.MasterKey == nil && cfg.Exporters[ISCSI] != nil && !cfg.Passive {
			return nil, fault.New(fault.Invalid, "pool %q derives CHAP passwords, but there is no master key", p.Name)
		}
		s.pools[p.Name] = &pool{cfg: p, err: fault.New(fault.Unavailable, "pool %q: the driver is starting", p.Name)}
		s.order = append(s.order, p.Name)
	}
	if len(s.order) == 0 {
		return nil, fault.New(fault.Invalid, "no pool is configured")
	}
	return s, nil
}

// Volume is what callers learn of a volume.
type Volume struct {
	ID            string
	CapacityBytes int64
	// Context is handed to every later call; it never changes.
	Context map[string]string
	// Source is what it was made from.
	Source Source
	// Nodes are the ids of the nodes that it is published to, sorted.
	Nodes []string
}

// Protocols returns what this service offers, sorted.
func (s *Service) Protocols() []string {
	var list []string
	for p := range s.cfg.Exporters {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// lock runs fn as an operation on one volume that changes something: it goes
// on when the caller leaves.
func (s *Service) lock(ctx context.Context, what string, id ident.VolumeID, fn func(context.Context) error) error {
	return s.lockAll(ctx, what, []ident.VolumeID{id}, nil, fn)
}

// lockAll is lock for an operation on several volumes, and on further names.
func (s *Service) lockAll(ctx context.Context, what string, ids []ident.VolumeID, others []string, fn func(context.Context) error) error {
	return s.lockFor(ctx, s.cfg.Operation, what, ids, others, fn)
}

// lockFor is lockAll for an operation that has its own bound.
func (s *Service) lockFor(ctx context.Context, timeout time.Duration, what string, ids []ident.VolumeID, others []string, fn func(context.Context) error) error {
	keys := slices.Clone(others)
	for _, id := range ids {
		keys = append(keys, id.String())
	}
	slices.Sort(keys)
	return s.ops.Do(ctx, op.Spec{
		What:     what,
		Keys:     slices.Compact(keys),
		Group:    "pool " + ids[0].Pool,
		Detached: true,
		Timeout:  timeout,
		Wait:     reconcileWait,
	}, func(ctx context.Context) error {
		defer func() {
			for _, id := range ids {
				s.touched.add(id)
			}
		}()
		return fn(ctx)
	})
}

// read runs fn without a lock, and returns at the caller's deadline even if a
// command on a suspended pool does not end.
func (s *Service) read(ctx context.Context, what, pool string, fn func(context.Context) error) error {
	return s.ops.Do(ctx, op.Spec{What: what, Group: "pool " + pool, Timeout: s.patience(pool)}, fn)
}

// Drain waits for running operations. Copies are cut off: they go on when they
// are asked for again.
func (s *Service) Drain(ctx context.Context) error {
	s.stop()
	return s.ops.Drain(ctx)
}

// Operations returns what runs now.
func (s *Service) Operations() []op.Running { return s.ops.Running() }

// find parses an id and reads its dataset: fault.NotFound when it names no
// volume of this driver.
func (s *Service) find(ctx context.Context, id ident.VolumeID) (*pool, *record, error) {
	p, err := s.pool(id.Pool)
	if err != nil {
		return nil, nil, err
	}
	d, err := s.cfg.ZFS.Get(ctx, p.dataset(id.Component))
	if err != nil {
		return nil, nil, describe(err, "read volume %s", id)
	}
	r, err := usable(id, d)
	if err != nil {
		return nil, nil, err
	}
	return p, r, nil
}

// findWithParent is find that reads the parent too, with the same command.
func (s *Service) findWithParent(ctx context.Context, id ident.VolumeID) (*record, zfs.Dataset, error) {
	p, err := s.pool(id.Pool)
	if err != nil {
		return nil, zfs.Dataset{}, err
	}
	d, above, err := s.cfg.ZFS.GetWithParent(ctx, p.dataset(id.Component))
	if err != nil {
		return nil, zfs.Dataset{}, describe(err, "read volume %s", id)
	}
	r, err := usable(id, d)
	return r, above, err
}

// usable reads a volume that can be worked with out of its dataset.
func usable(id ident.VolumeID, d zfs.Dataset) (*record, error) {
	r, ok := readRecord(id, d)
	if !ok {
		return nil, notOurs(id, d)
	}
	if r.err != nil {
		return nil, r.err
	}
	if d.KeyMissing() {
		return nil, fault.New(fault.Precondition, "volume %s: the encryption key of %s is not loaded: run `zfs load-key`", id, d.Name)
	}
	return r, nil
}

func notOurs(id ident.VolumeID, d zfs.Dataset) error {
	return fault.New(fault.NotFound, "volume %s does not exist: dataset %s was not made by this driver", id, d.Name)
}

// parse reads an id that must name a pool of the configuration.
func (s *Service) parse(id string) (ident.VolumeID, error) {
	v, err := ident.ParseVolumeID(id)
	if err != nil {
		return v, err
	}
	if s.pools[v.Pool] == nil {
		return v, fault.New(fault.NotFound, "volume %s does not exist: no pool %q is configured", v, v.Pool)
	}
	return v, nil
}
