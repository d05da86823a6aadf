package volume_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/pkg/zfs/fake"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// journal is a log that may be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *journal) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *journal) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func logged(c *volume.Config) *journal {
	l := &journal{}
	log := logrus.New()
	log.SetOutput(l)
	c.Log = log
	return l
}

// A command on one pool that nothing can end: the others are served, each round
// comes to an end, no further command is stacked upon it, and calls for its
// volumes are refused at once.
func TestReconcileBesideAPoolThatDoesNotAnswer(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	must(t, e.Pool.Make("tank/other"))
	second(&e.cfg)
	slices.Reverse(e.cfg.Pools) // the one that hangs comes first
	gate := make(chan struct{})
	e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "get tank/other", gate: gate, entered: make(chan struct{}, 64)}
	e.cfg.Operation = 300 * time.Millisecond
	e.lose()
	begin := time.Now()
	e.start()
	e.wantOpened("v 192.0.2.21 rw")
	for range 3 {
		wantKind(t, e.Reconcile(t.Context()), fault.Unavailable, `"other" does not answer`)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("four rounds took %s", d)
	}
	if n := len(e.Operations()); n != 1 {
		t.Errorf("%d operations run, want the one that hangs", n)
	}
	_, err := e.Create(t.Context(), with(request("w", "nfs"), "pool", "other"))
	wantKind(t, err, fault.Unavailable, "does not answer")
	close(gate)
	waitFor(t, func() bool { return e.Reconcile(t.Context()) == nil })
	e.create(with(request("w", "nfs"), "pool", "other"))
}

// A pool that answers, and takes longer to be listed than a command may, is no
// pool that hangs: it is used meanwhile, and gets more time until it is listed.
func TestReconcileOfAPoolThatIsSlow(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	slow := &slowly{ZFS: e.cfg.ZFS, takes: 400 * time.Millisecond}
	e.cfg.ZFS = slow
	e.cfg.Operation = 300 * time.Millisecond
	for _, verb := range []string{"children", "snapshots"} {
		slow.verb.Store("")
		e.start()
		slow.verb.Store(verb)
		must(t, e.LoseExports(true))
		wantKind(t, e.Reconcile(t.Context()), fault.Unavailable, `"tank" answers`)
		e.create(request("beside-"+verb, "nfs"))
		// On a busy machine an export, too, may need more than one round in so short a time.
		waitFor(t, func() bool { return e.Reconcile(t.Context()) == nil && len(e.opened()) > 0 })
		e.wantOpened("v 192.0.2.21 rw")
	}
	if n := slow.cut.Load(); n < 2 || n > 6 {
		t.Errorf("%d listings were cut off", n)
	}
}

// The exports are back before snapshots are listed, of which there may be many.
func TestExportsComeBeforeSnapshots(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	e.publish(to(e.create(request("w", "iscsi")), nodeA))
	before := e.opened()
	gate, entered := make(chan struct{}), make(chan struct{}, 64)
	e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "snapshots", gate: gate, entered: entered}
	e.lose()
	e.wantOpened()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.start()
	}()
	<-entered
	e.wantOpened(before...)
	close(gate)
	<-done
}

// crowd is an exporter that lets none go on before wanted are there at once, or its
// patience is over.
type crowd struct {
	export.Exporter
	wanted   int
	patience time.Duration

	mu        sync.Mutex
	now, most int
	there     chan struct{}
}

func (c *crowd) Ensure(ctx context.Context, v export.Volume) error {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	if c.now == c.wanted {
		close(c.there)
	}
	c.mu.Unlock()
	select {
	case <-c.there:
	case <-time.After(c.patience):
	}
	err := c.Exporter.Ensure(ctx, v)
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	return err
}

// Volumes that only an exportfs is missing share one, however many they are. In a
// round in which nothing is missing few are held at once, since a call waits for the
// one that it needs.
func TestReconcileOfManyExports(t *testing.T) {
	e := newEnv(t)
	const volumes = 100
	for i := range volumes {
		e.publish(to(e.create(request(fmt.Sprint("v", i), "nfs")), nodeA))
	}
	c := &crowd{Exporter: e.Exporters(storage.Quiet())["nfs"], wanted: volumes, patience: 10 * time.Second, there: make(chan struct{})}
	e.cfg.Exporters = map[string]export.Exporter{"nfs": c}
	must(t, e.LoseExports(true))
	e.start()
	if n := len(e.opened()); c.most != volumes || n != volumes {
		t.Errorf("%d at once, %d are exported", c.most, n)
	}
	c.most, c.wanted, c.patience, c.there = 0, volumes, 200*time.Millisecond, make(chan struct{})
	must(t, e.Reconcile(t.Context()))
	if c.most == 0 || c.most > 64 {
		t.Errorf("%d at once in a round in which nothing is missing", c.most)
	}
}

// slowly is a ZFS of which one kind of listing takes its time, or as long as its
// caller waits.
type slowly struct {
	volume.ZFS
	takes time.Duration
	verb  atomic.Value
	cut   atomic.Int32
}

func (s *slowly) wait(ctx context.Context, verb string) error {
	if verb != s.verb.Load() {
		return nil
	}
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		s.cut.Add(1)
		return ctx.Err()
	}
}

func (s *slowly) Children(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	if err := s.wait(ctx, "children"); err != nil {
		return nil, err
	}
	return s.ZFS.Children(ctx, parent)
}

func (s *slowly) Snapshots(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	if err := s.wait(ctx, "snapshots"); err != nil {
		return nil, err
	}
	return s.ZFS.Snapshots(ctx, parent)
}

// hanging is an exporter that one volume hangs in, for good.
type hanging struct {
	export.Exporter
	source string
	gate   chan struct{}
}

func (h hanging) Ensure(ctx context.Context, v export.Volume) error {
	if strings.HasSuffix(v.Source, h.source) {
		<-h.gate
	}
	return h.Exporter.Ensure(ctx, v)
}

func TestReconcileBesideAVolumeThatHangs(t *testing.T) {
	e := newEnv(t)
	for _, name := range []string{"a", "b", "c"} {
		e.publish(to(e.create(request(name, "nfs")), nodeA))
	}
	gate := make(chan struct{})
	e.cfg.Exporters = e.Exporters(e.cfg.Log.(*logrus.Logger))
	e.cfg.Exporters["nfs"] = hanging{e.cfg.Exporters["nfs"], "/a", gate}
	e.cfg.Operation = time.Second
	e.lose()
	begin := time.Now()
	e.start()
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("the round took %s", d)
	}
	e.wantOpened("b 192.0.2.21 rw", "c 192.0.2.21 rw")
	close(gate)
	waitFor(t, func() bool { return len(e.Operations()) == 0 })
}

// No command is started on a pool that the kernel says is suspended, and calls
// are told why.
func TestNoCommandOnASuspendedPool(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	e.Pool.Suspend()
	var calls []fake.Call
	e.Pool.Observe(func(c fake.Call) { calls = append(calls, c) })
	wantKind(t, e.Reconcile(t.Context()), fault.Unavailable, "suspended", "zpool clear")
	e.Pool.Observe(nil)
	if len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
	wantKind(t, e.Delete(t.Context(), v.ID), fault.Unavailable, "suspended")
	e.Pool.Resume()
	must(t, e.Reconcile(t.Context()))
	must(t, e.Delete(t.Context(), v.ID))
}

// An import, and a pool that goes on, are noticed by the running daemon, long
// before its next round is due. Without its only pool it is not ready.
func TestRunNoticesAnImport(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	e.cfg.Rest = time.Hour
	e.start()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { e.Run(ctx); close(ended) }()
	waitFor(t, func() bool { return e.Ready() == nil })

	e.Pool.SetState("DEGRADED")
	must(t, e.LoseExports(true))
	waitFor(t, func() bool { return slices.Equal(e.opened(), []string{"v 192.0.2.21 rw"}) })

	e.Pool.Suspend()
	waitFor(t, func() bool { return contains(e.Ready(), "suspended") })
	e.Pool.Resume()
	waitFor(t, func() bool { return e.Ready() == nil })
	cancel()
	<-ended
}

// What stays as it is is told once: a broken volume, a pool that is away, what
// others export.
func TestReconcileTellsOnce(t *testing.T) {
	e := newEnv(t)
	log := logged(&e.cfg)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	e.lose()
	must(t, e.Pool.MountByHand(parent+"/v", e.Dir("elsewhere")))
	must(t, e.Configfs.Mkdir("target/iscsi/iqn.2005-10.org.example:storage"))
	must(t, e.ForeignExport("/srv/music", "192.0.2.77"))
	e.start()
	for range 3 {
		must(t, e.Reconcile(t.Context()))
	}
	for _, text := range []string{"is not exported", "iqn.2005-10.org.example:storage", "192.0.2.77:/srv/music"} {
		if n := log.count(text); n != 1 {
			t.Errorf("%q is told %d times", text, n)
		}
	}
	if e.Targets() == nil || !slices.ContainsFunc(e.Exports(), func(l string) bool { return strings.HasPrefix(l, "/srv/music") }) {
		t.Error("a foreign target or export was touched")
	}
	// Healed and broken again is news.
	must(t, e.ZFS().UnmountByHand(parent+"/v"))
	must(t, e.Reconcile(t.Context()))
	e.lose()
	must(t, e.Pool.MountByHand(parent+"/v", e.Dir("elsewhere")))
	must(t, e.Reconcile(t.Context()))
	if n := log.count("is not exported"); n != 2 {
		t.Errorf("told %d times after it was healed in between", n)
	}
}
