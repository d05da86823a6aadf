package volume_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// wantHealth compares what is wrong with a volume, by reason and severity (D or
// I), as both RPCs tell it.
func (e *env) wantHealth(id string, want ...string) {
	e.t.Helper()
	list, err := e.Health(e.t.Context(), id)
	must(e.t, err)
	got := words(list)
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("health of %s differs (-want +got)\n%s", id, diff)
	}
	all, _, err := e.ListHealth(e.t.Context(), 0, "")
	must(e.t, err)
	got = nil
	for _, h := range all {
		if len(h.Conditions) == 0 {
			e.t.Errorf("%s is listed, and is well", h.VolumeID)
		}
		if h.VolumeID == id {
			got = words(h.Conditions)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("listed health of %s differs (-want +got)\n%s", id, diff)
	}
}

func words(list []volume.Condition) []string {
	var got []string
	for _, c := range list {
		letter := map[volume.Severity]string{volume.Degraded: "D", volume.Inaccessible: "I"}[c.Severity]
		got = append(got, letter+" "+c.Reason)
	}
	return got
}

func TestHealthOfWhatIsWell(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.wantHealth(v.ID)
		e.publish(to(v, nodeA))
		e.wantHealth(v.ID)
		must(t, e.Unpublish(t.Context(), v.ID, nodeA))
		e.wantHealth(v.ID)
	})
}

func TestHealthOfWhatIsNotThere(t *testing.T) {
	e := newEnv(t)
	for _, id := range []string{"tank/none", "nopool/v", "../v"} {
		_, err := e.Health(t.Context(), id)
		wantKind(t, err, fault.NotFound)
	}
	must(t, e.Pool.Make(parent+"/foreign"))
	_, err := e.Health(t.Context(), "tank/foreign")
	wantKind(t, err, fault.NotFound)
}

func TestHealthFollowsThePool(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.Pool.SetState("DEGRADED")
	e.wantHealth(v.ID, "D PoolDegraded")
	must(t, e.Reconcile(t.Context())) // so that the volume is known
	for state, want := range map[string]string{"FAULTED": "I PoolUnavailable", "": "I PoolUnavailable", "DEGRADED": "D PoolDegraded"} {
		e.Pool.SetState(state)
		e.wantHealth(v.ID, want)
	}
	e.Pool.SetState("ONLINE")
	for name, suspend := range map[string]func(){"it refuses": e.Pool.SuspendRefusing, "it hangs": e.Pool.Suspend} {
		t.Log(name)
		suspend()
		e.wantHealth(v.ID, "I PoolSuspended")
		_, err := e.Health(t.Context(), "tank/none")
		wantKind(t, err, fault.Unavailable, "suspended", "zpool clear")
		e.Pool.Resume()
		e.wantHealth(v.ID)
	}
}

// Of a pool that was never listed nothing is known.
func TestHealthOfAPoolThatWasNeverThere(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", volume.NFS))
	e.Pool.SuspendRefusing()
	e.start()
	_, err := e.Health(t.Context(), "tank/v")
	wantKind(t, err, fault.Unavailable)
	_, _, err = e.ListHealth(t.Context(), 0, "")
	wantKind(t, err, fault.Unavailable, "suspended")
}

// A key that is not loaded is told from the first moment on, when the pool
// cannot be used at all.
func TestHealthWithoutTheKey(t *testing.T) {
	for _, at := range []string{parent, "tank/csi/v"} {
		e := newEnv(t)
		v := e.create(request("v", volume.ISCSI))
		must(t, e.Pool.Encrypt(at))
		e.wantHealth(v.ID)
		if at == parent {
			must(t, e.Pool.UnmountByHand(parent))
		}
		must(t, e.Pool.LockKey(at))
		e.wantHealth(v.ID, "I EncryptionKeyMissing")
		e.start()
		e.wantHealth(v.ID, "I EncryptionKeyMissing")
	}
}

func TestHealthOfMounts(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	must(t, e.Pool.UnmountByHand(parent+"/v"))
	e.wantHealth(v.ID) // the next publish mounts it
	e.publish(to(v, nodeA))
	must(t, e.Pool.UnmountByHand(parent+"/v"))
	e.wantHealth(v.ID, "I NotMounted")
	must(t, e.Pool.MountByHand(parent+"/v", e.Dir("elsewhere")))
	e.wantHealth(v.ID, "I MountedElsewhere")
}

func TestHealthOfExports(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		r := request("v", protocol)
		r.Capabilities = []access.Capability{mounted(access.MultiNodeReaderOnly)}
		v := e.create(r)
		for _, node := range []string{nodeA, nodeB} {
			p := to(v, node)
			p.Capability = mounted(access.MultiNodeReaderOnly)
			e.publish(p)
		}
		e.wantHealth(v.ID)
		e.dropOne(protocol)
		e.wantHealth(v.ID, "D NotExported")
		must(t, e.Reconcile(t.Context()))
		e.wantHealth(v.ID)
		must(t, e.LoseConfigfs(t.Context()))
		must(t, e.LoseExports(true))
		e.wantHealth(v.ID, "I NotExported")
		must(t, e.Reconcile(t.Context()))
		e.wantHealth(v.ID)
	})
}

// dropOne takes the access of the second node away behind the driver's back.
func (e *env) dropOne(protocol string) {
	e.t.Helper()
	x := e.Exporters(storage.Quiet())[protocol]
	list, err := x.List(e.t.Context())
	must(e.t, err)
	v := export.Volume{ID: "tank/v", UUID: list[0].UUID}
	name, addr, _ := strings.Cut(nodeA, "@")
	g := export.Grant{Node: name, Addresses: []netip.Addr{netip.MustParseAddr(addr)}, ReadOnly: true, Initiator: e.Naming.Initiator(name)}
	if protocol == volume.NFS {
		v.Source, v.Squash.Mode = e.Dir("tank/csi/v"), "none"
	} else {
		v.Source, v.SizeBytes = "/dev/zvol/"+parent+"/v", gib
		v.Portals = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(address), 3260)}
		c := chap.Derive(chap.NodeKey(e.cfg.MasterKey, g.Node), g.Node, v.UUID)
		g.CHAP = &c
	}
	v.Grants = []export.Grant{g}
	must(e.t, x.Ensure(e.t.Context(), v))
}

func TestHealthWithoutACHAPPair(t *testing.T) {
	e := newEnv(t, func(c *volume.Config) { c.Pools[0].CHAP = chap.Secrets })
	v := e.create(request("v", volume.ISCSI))
	p := to(v, nodeA)
	p.Secrets = map[string]string{"node.session.auth.username": "u", "node.session.auth.password": "sixteen-letters!"}
	e.publish(p)
	e.wantHealth(v.ID)
	files, err := filepath.Glob(filepath.Join(e.Dir("chap"), "*"))
	must(t, err)
	for _, f := range files {
		must(t, os.RemoveAll(f))
	}
	e.wantHealth(v.ID, "I CHAPPairMissing")
}

func TestHealthOfAVolumeThatMakesNoSense(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	must(t, e.Pool.Put(parent+"/v", "tarn:request", "{"))
	e.wantHealth(v.ID, "I PropertiesUnreadable")
}

// down is an exporter whose server does not run.
type down struct{ nothing }

func (down) Ready(context.Context) error {
	return fault.New(fault.Unavailable, "the server is not running: start it")
}

func TestHealthOfAServerThatIsDown(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	w := e.create(request("w", volume.ISCSI))
	e.publish(to(v, nodeA))
	e.publish(to(w, nodeA))
	e.cfg.Exporters = e.Exporters(e.cfg.Log)
	e.cfg.Exporters[volume.NFS] = down{}
	e.start()
	e.wantHealth(v.ID, "I ServerUnavailable")
	e.wantHealth(w.ID)
	delete(e.cfg.Exporters, volume.NFS)
	e.start()
	e.wantHealth(v.ID, "I ServerUnavailable")
	e.wantHealth(w.ID)
}

// The listing is paged, and its cost is two commands, whatever the number of
// volumes.
func TestListHealth(t *testing.T) {
	e := newEnv(t)
	for k := range 5 {
		e.publish(to(e.create(request(fmt.Sprint("v", k), volume.NFS)), nodeA))
	}
	must(t, e.Pool.UnmountByHand(parent+"/v1"))
	must(t, e.Pool.UnmountByHand(parent+"/v3"))
	commands := 0
	e.Pool.Observe(func(c zfsfake.Call) {
		if c.Verb != "mounts" {
			commands++
		}
	})
	list, next, err := e.ListHealth(t.Context(), 1, "")
	must(t, err)
	if commands != 2 {
		t.Errorf("%d commands", commands)
	}
	if len(list) != 1 || list[0].VolumeID != "tank/v1" || next == "" {
		t.Fatalf("%+v, %q", list, next)
	}
	list, next, err = e.ListHealth(t.Context(), 1, next)
	must(t, err)
	if len(list) != 1 || list[0].VolumeID != "tank/v3" || next != "" {
		t.Fatalf("%+v, %q", list, next)
	}
	_, _, err = e.ListHealth(t.Context(), 0, "no token")
	wantKind(t, err, fault.Aborted)
	_, _, err = e.ListHealth(t.Context(), -1, "")
	wantKind(t, err, fault.Invalid)
}

// A foreign driver's parent is not looked into.
func TestHealthOfAForeignParent(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", volume.NFS))
	e.cfg.Driver = "another.driver"
	e.start()
	_, err := e.Health(t.Context(), "tank/v")
	wantKind(t, err, fault.Precondition)
	_, _, err = e.ListHealth(t.Context(), 0, "")
	wantKind(t, err, fault.Precondition)
}
