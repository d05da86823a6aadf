package volume_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// lose is a reboot of the storage host: no export, no target, nothing mounted.
func (e *env) lose() {
	e.t.Helper()
	must(e.t, e.LoseExports(true))
	must(e.t, e.LoseConfigfs(context.Background()))
	must(e.t, e.Pool.Reboot(false))
	must(e.t, e.Pool.MountByHand(parent, e.Dir(parent)))
}

// After a reboot the next service exports exactly what is published.
func TestReconcileAfterReboot(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.create(request("closed", protocol))
		e.publish(to(v, nodeA))
		before := append(e.Exports(), e.Targets()...)
		e.lose()
		e.wantOpened()
		e.start()
		e.wantOpened(open(protocol, nodeA))
		if after := append(e.Exports(), e.Targets()...); strings.Join(before, "\n") != strings.Join(after, "\n") {
			t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
	})
}

// A round with nothing to do changes nothing.
func TestReconcileIsQuiet(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "iscsi")), nodeA))
	must(t, e.Reconcile(t.Context()))
	e.wantOpened("worker-a")
}

// An export that no volume wants is removed, of volumes that are gone and of
// those that are not published.
func TestReconcileRemovesStrays(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.publish(to(v, nodeA))
		d, err := e.ZFS().Get(t.Context(), parent+"/v")
		must(t, err)
		// Behind the driver's back the publication is gone, as after a rollback
		// of the pool.
		must(t, e.ZFS().Inherit(t.Context(), d.Name, "tarn:node.worker-a"))
		e.start()
		e.wantOpened()
		e.publish(to(v, nodeA))
		e.wantOpened(open(protocol, nodeA))
		// The same service closes it too.
		must(t, e.ZFS().Inherit(t.Context(), d.Name, "tarn:node.worker-a"))
		must(t, e.Reconcile(t.Context()))
		e.wantOpened()
	})
}

// While a pool is away, an export of no volume that is known may be one of its
// volumes', and stays; that of a volume which is known and not published goes.
func TestStraysWhileAPoolIsAway(t *testing.T) {
	e := newEnv(t)
	e.publish(to(e.create(request("v", "nfs")), nodeA))
	e.publish(to(e.create(request("w", "nfs")), nodeA))
	must(t, e.ZFS().Inherit(t.Context(), parent+"/w", "tarn:node.worker-a"))
	must(t, e.ZFS().UnmountByHand(parent+"/v"))
	must(t, e.ZFS().Destroy(t.Context(), parent+"/v"))
	second(&e.cfg)
	e.start()
	e.wantOpened("v 192.0.2.21 rw")
	must(t, e.Pool.Make("tank/other"))
	must(t, e.Reconcile(t.Context()))
	e.wantOpened()
}

// A volume that cannot be exported does not keep the others closed.
func TestReconcileGoesOn(t *testing.T) {
	e := newEnv(t)
	for _, name := range []string{"a", "b", "c"} {
		e.publish(to(e.create(request(name, "nfs")), nodeA))
	}
	e.lose()
	must(t, e.Pool.MountByHand(parent+"/b", e.Dir("elsewhere")))
	e.start()
	e.wantOpened("a 192.0.2.21 rw", "c 192.0.2.21 rw")
}

// reconciling starts another service whose first round has read its listing and
// goes no further until the returned function is called, which ends with it.
func (e *env) reconciling() (goOn func()) {
	e.t.Helper()
	return e.reconcilingAt(func(cfg *volume.Config, entered chan struct{}, gate <-chan struct{}) {
		cfg.ZFS = &gated{ZFS: cfg.ZFS, verb: "children", gate: gate, entered: entered}
	})
}

// reconcilingAt is reconciling where set puts the gate somewhere else.
func (e *env) reconcilingAt(set func(cfg *volume.Config, entered chan struct{}, gate <-chan struct{})) (goOn func()) {
	e.t.Helper()
	must(e.t, e.Close())
	entered, gate := make(chan struct{}, 64), make(chan struct{})
	cfg := e.cfg
	set(&cfg, entered, gate)
	cfg.Exporters = e.Exporters(storage.Quiet())
	s, err := volume.New(cfg)
	must(e.t, err)
	e.Service = s
	result := make(chan error, 1)
	go func() { result <- s.Reconcile(context.Background()) }()
	<-entered
	return func() {
		close(gate)
		must(e.t, <-result)
	}
}

// oldTable is a host whose first answer about mounts comes late.
type oldTable struct {
	volume.Host
	once sync.Once
	wait func()
}

func (o *oldTable) Mounts(ctx context.Context) (map[string]string, error) {
	table, err := o.Host.Mounts(ctx)
	o.once.Do(o.wait)
	return table, err
}

// So does the table of mounts get old: of a volume on which a call has worked, it
// is read again.
func TestMountsOfAReconcileAreOld(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	e.publish(to(v, nodeA))
	goOn := e.reconcilingAt(func(cfg *volume.Config, entered chan struct{}, gate <-chan struct{}) {
		cfg.Host = &oldTable{Host: cfg.Host, wait: func() { entered <- struct{}{}; <-gate }}
	})
	must(t, e.Unpublish(t.Context(), v.ID, nodeA))
	e.publish(to(v, nodeA))
	e.lose()
	goOn()
	e.wantOpened("v 192.0.2.21 rw")
	if _, mounted, err := e.Pool.MountedAt(t.Context(), parent+"/v"); err != nil || !mounted {
		t.Errorf("mounted: %t, %v", mounted, err)
	}
}

// A reconcile works with a listing that may be old. What was unpublished after
// the listing is not opened again.
func TestUnpublishDuringReconcileStays(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.publish(to(v, nodeA))
		goOn := e.reconciling()
		must(t, e.Unpublish(t.Context(), v.ID, nodeA))
		e.wantOpened()
		goOn()
		e.wantOpened()
		must(t, e.Delete(t.Context(), v.ID))
	})
}

// And what was published after the listing is not closed as a stray.
func TestPublishDuringReconcileStays(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		goOn := e.reconciling()
		e.publish(to(v, nodeA))
		late := e.create(request("late", protocol))
		r := to(late, nodeA)
		e.publish(r)
		before := e.opened()
		goOn()
		e.wantOpened(before...)
	})
}

// A deletion and a new volume of the same name during a reconcile: the export
// of the old one does not come back.
func TestRecreationDuringReconcile(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.publish(to(v, nodeA))
		goOn := e.reconciling()
		must(t, e.Unpublish(t.Context(), v.ID, ""))
		must(t, e.Delete(t.Context(), v.ID))
		e.create(request("v", protocol))
		goOn()
		e.wantOpened()
	})
}
