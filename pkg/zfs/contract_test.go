package zfs_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/pkg/zfs/fake"
)

// The rules are what package zfs promises and OpenZFS does. They run against the
// fake here and against the real thing in the guest, so that tests on the fake
// prove something.

// rule is one fact, checked in a world of its own.
type rule struct {
	name  string
	check func(w *world)
}

// rules are all of them.
var rules = [][]rule{
	createRules, destroyRules, propertyRules, readRules, renameRules, spaceRules, mountRules, emptyRules, keyRules,
	snapshotRules, useRules, deferRules, cloneRules, setAllRules, copyRules, watchRules,
}

// subject is what is tested: a Client on the real ZFS, or the fake.
type subject interface {
	Get(ctx context.Context, name string) (zfs.Dataset, error)
	Children(ctx context.Context, parent string) ([]zfs.Dataset, error)
	Create(ctx context.Context, s zfs.Spec) error
	Destroy(ctx context.Context, name string) error
	Set(ctx context.Context, name string, s zfs.Setting) error
	Inherit(ctx context.Context, name, property string) error
	Rename(ctx context.Context, from, to string) error
	GetWithParent(ctx context.Context, name string) (d, above zfs.Dataset, err error)
	PoolState(ctx context.Context, dataset string) (string, error)
	Mounts(ctx context.Context) (map[string]string, error)
	KeysMissing(ctx context.Context, parent string) (map[string]bool, error)
	Snapshot(ctx context.Context, s zfs.SnapshotSpec) error
	Snapshots(ctx context.Context, parent string) ([]zfs.Dataset, error)
	SnapshotUses(ctx context.Context, parent string) ([]zfs.Dataset, error)
	Inventory(ctx context.Context, parent string) ([]zfs.Dataset, error)
	Holders(ctx context.Context, property string) (map[string]string, error)
	Clone(ctx context.Context, snapshot string, s zfs.Spec) error
	DestroyLater(ctx context.Context, snapshot string) error
	Copy(ctx context.Context, snapshot string, s zfs.Spec) error
	DropCopy(ctx context.Context, dataset string) error
	SetAll(ctx context.Context, name string, list []zfs.Setting) error
	Available(ctx context.Context, dataset string) (int64, error)
	MountedAt(ctx context.Context, dataset string) (string, bool, error)
	Mount(ctx context.Context, dataset, dir string, atime bool) error
	Remount(ctx context.Context, dir string, atime bool) error
	Unmount(ctx context.Context, dir string) error
	SetRoot(ctx context.Context, dir string, r zfs.Root) error
	LooksEmpty(ctx context.Context, d zfs.Dataset) (bool, error)
}

// admin is the rest of the world: an administrator and other tools.
type admin interface {
	Make(name string, properties ...zfs.Setting) error
	Bare(name string, volumeBytes int64) error
	Put(name, property, value string) error
	Receive(name string) error
	TakeSnapshot(name string) error
	MakeClone(snapshot, name string) error
	// MakePartial leaves what a Copy leaves that is killed in the middle.
	MakePartial(snapshot string, s zfs.Spec) error
	HoldSnapshot(name string) (func(), error)
	Write(name string, bytes int64) error
	// WriteLast writes the last byte of a zvol.
	WriteLast(name string) error
	HoldOpen(name string) (func(), error)
	UnmountByHand(name string) error
	MakeEncrypted(name string) error
	LockKey(name string) error
	LoadKey(name string) error
}

// world is what one rule sees.
type world struct {
	*testing.T
	subject
	admin admin
	// parent is an empty filesystem, mounted at dir. A blank is in both.
	parent, dir string
	// rootOf returns owner and mode of a filesystem's root.
	rootOf func(dataset, dir string) zfs.Root
	// poolBytes is above what the pool can hold.
	poolBytes int64
}

// patience is above what any single step takes, in the guest too.
const patience = 2 * time.Minute

func (w *world) at(name string) string { return w.parent + "/" + name }

// must fails the test when a preparation was refused.
func (w *world) must(errs ...error) {
	w.Helper()
	for _, err := range errs {
		if err != nil {
			w.Fatalf("preparation: %v", err)
		}
	}
}

// causes are all that errors are told apart by.
var causes = []error{
	zfs.ErrNotExist, zfs.ErrExists, zfs.ErrNoParent, zfs.ErrBusy, zfs.ErrDependents,
	zfs.ErrNoSpace, zfs.ErrSuspended, zfs.ErrNoKey, zfs.ErrBadValue,
}

// fails expects an error with exactly this cause; nil expects one without any.
func (w *world) fails(err, cause error) {
	w.Helper()
	if err == nil {
		w.Fatalf("it succeeded, and should fail with %v", cause)
	}
	for _, c := range causes {
		if errors.Is(err, c) != (c == cause) {
			w.Fatalf("the error %q has cause %v: %t, and its cause should be %v", err, c, errors.Is(err, c), cause)
		}
	}
}

func (w *world) works(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("it should succeed: %v", err)
	}
}

// fs and zvol make a dataset below the parent.
func (w *world) fs(name string, properties ...string) string {
	w.Helper()
	w.must(w.Create(w.Context(), zfs.Spec{Name: w.at(name), Properties: settings(properties...)}))
	return w.at(name)
}

func (w *world) zvol(name string, bytes int64, properties ...string) string {
	w.Helper()
	w.must(w.Create(w.Context(), zfs.Spec{Name: w.at(name), VolumeBytes: bytes, Thin: true, Properties: settings(properties...)}))
	return w.at(name)
}

// settings reads name=value.
func settings(list ...string) []zfs.Setting {
	var s []zfs.Setting
	for _, nv := range list {
		name, value, _ := strings.Cut(nv, "=")
		s = append(s, zfs.Setting{Name: name, Value: value})
	}
	return s
}

// get reads a dataset that must exist.
func (w *world) get(name string) zfs.Dataset {
	w.Helper()
	d, err := w.Get(w.Context(), name)
	if err != nil {
		w.Fatalf("get %s: %v", name, err)
	}
	return d
}

// gone expects that a dataset does not exist.
func (w *world) gone(name string) {
	w.Helper()
	_, err := w.Get(w.Context(), name)
	w.fails(err, zfs.ErrNotExist)
}

// equal compares what was read.
func equal[T comparable](w *world, what string, got, want T) {
	w.Helper()
	if got != want {
		w.Fatalf("%s is %v, and should be %v", what, got, want)
	}
}

// eventually repeats what the host may keep busy for a moment.
func (w *world) eventually(call func() error, while error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := call()
		if err == nil {
			return
		}
		if !errors.Is(err, while) || time.Now().After(deadline) {
			w.Fatalf("it should succeed in the end: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// runRules runs every rule in the world that fresh makes for it.
func runRules(t *testing.T, fresh func(t *testing.T) *world) {
	for _, group := range rules {
		for _, r := range group {
			t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) { r.check(fresh(t)) })
		}
	}
}

func TestContractFake(t *testing.T) {
	runRules(t, func(t *testing.T) *world {
		t.Parallel()
		dir := t.TempDir()
		f := fake.New("tank", 256<<20, dir)
		w := &world{T: t, subject: f, admin: fakeAdmin{f}, parent: "tank/a b/csi", dir: filepath.Join(dir, "tank/a b/csi"), poolBytes: 256 << 20}
		w.rootOf = func(dataset, _ string) zfs.Root { return f.RootOf(dataset) }
		w.must(f.Make(w.parent))
		return w
	})
}

type fakeAdmin struct{ *fake.ZFS }

func (f fakeAdmin) MakeEncrypted(name string) error {
	return errors.Join(f.Make(name), f.Encrypt(name))
}

func (f fakeAdmin) WriteLast(name string) error { return f.Write(name, 1) }

func (f fakeAdmin) LoadKey(name string) error { return f.Encrypt(name) }
