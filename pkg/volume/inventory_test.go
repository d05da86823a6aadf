package volume_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// look is another process that looks at the host, beside the service.
func (e *env) look() *volume.Service {
	e.t.Helper()
	cfg := e.cfg
	cfg.Passive, cfg.MasterKey = true, nil
	if cfg.Exporters == nil {
		cfg.Exporters = e.Exporters(storage.Quiet())
	}
	s, err := volume.New(cfg)
	must(e.t, err)
	return s
}

// lines are what a person cares about: volume, export, clients, snapshots,
// conditions.
func lines(list []volume.Entry) []string {
	var got []string
	for _, v := range list {
		clients := []string{}
		for _, c := range v.Clients {
			clients = append(clients, c[strings.LastIndexByte(c, ':')+1:])
		}
		line := v.ID + " " + v.Export + " " + strings.Join(clients, ",")
		if len(v.Conditions) > 0 {
			line += " " + strings.Join(words(v.Conditions), ",")
		}
		got = append(got, line)
	}
	return got
}

func (e *env) wantInventory(want ...string) []volume.Entry {
	e.t.Helper()
	list, err := e.look().Inventory(e.t.Context())
	must(e.t, err)
	if diff := cmp.Diff(want, lines(list)); diff != "" {
		e.t.Errorf("the inventory differs (-want +got)\n%s", diff)
	}
	return list
}

// The table says what is, and not what should be.
func TestInventoryTellsTheTruth(t *testing.T) {
	for protocol, clients := range map[string][2]string{volume.NFS: {"192.0.2.21", "192.0.2.22"}, volume.ISCSI: {"worker-a", "worker-b"}} {
		e := newEnv(t)
		r := request("v", protocol)
		r.Capabilities = []access.Capability{mounted(access.MultiNodeReaderOnly)}
		v := e.create(r)
		e.wantInventory("tank/v none ")
		for _, node := range []string{nodeA, nodeB} {
			p := to(v, node)
			p.Capability = mounted(access.MultiNodeReaderOnly)
			e.publish(p)
		}
		list := e.wantInventory("tank/v open " + clients[0] + "," + clients[1])
		if want := []string{nodeA, nodeB}; !slices.Equal(list[0].PublishedTo, want) {
			t.Errorf("published to %q", list[0].PublishedTo)
		}
		e.dropOne(protocol)
		e.wantInventory("tank/v partly " + clients[0] + " D NotExported")
		must(t, e.Reconcile(t.Context()))
		must(t, e.LoseConfigfs(t.Context()))
		must(t, e.LoseExports(false))
		e.wantInventory("tank/v missing  I NotExported")
		must(t, e.Reconcile(t.Context()))
		// The properties go by hand: open, and to nobody by them.
		for _, node := range []string{"worker-a", "worker-b"} {
			must(t, e.Pool.Inherit(t.Context(), parent+"/v", "tarn:node."+node))
		}
		e.wantInventory("tank/v stray " + clients[0] + "," + clients[1])
		must(t, e.Unpublish(t.Context(), v.ID, ""))
		e.wantInventory("tank/v none ")
	}
}

// It counts what volumes take, and whose snapshots they have.
func TestInventoryCounts(t *testing.T) {
	e := newEnv(t)
	r := request("v", volume.NFS)
	for key, value := range map[string]string{"name": "claim", "namespace": "shop"} {
		r = with(r, "csi.storage.k8s.io/pvc/"+key, value)
	}
	v := e.create(r)
	e.create(request("w", volume.ISCSI))
	must(t, e.Pool.Write(parent+"/v", 5<<20))
	e.snapshot("s", v.ID)
	must(t, e.Pool.TakeSnapshot(parent+"/v@backup"))
	must(t, e.Pool.TakeSnapshot(parent+"/v@backup-2"))
	must(t, e.Pool.Make(parent+"/foreign"))
	commands := 0
	e.Pool.Observe(func(c zfsfake.Call) {
		if c.Verb != "mounts" {
			commands++
		}
	})
	list, err := e.look().Inventory(t.Context())
	must(t, err)
	if commands != 3 {
		t.Errorf("%d commands", commands)
	}
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	if e := list[0]; e.Snapshots != 1 || e.ForeignSnapshots != 2 || e.SizeBytes != gib || e.UsedBytes < 5<<20 || e.Owner.String() != "shop/claim" || e.Protocol != volume.NFS {
		t.Errorf("%+v", e)
	}
	if e := list[1]; e.Snapshots != 0 || e.SizeBytes != gib || e.UsedBytes >= 5<<20 || e.Owner.String() != "" {
		t.Errorf("%+v", e)
	}
	var out bytes.Buffer
	must(t, volume.PrintInventory(&out, list))
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"VOLUME OWNER PROTOCOL SIZE USED SNAPSHOTS PUBLISHED TO EXPORT CONDITION",
		"tank/v shop/claim nfs 1G 5.09M 1, 2 foreign - none OK", "tank/w - iscsi 1G 28K 0 - none OK"} {
		if got := strings.Join(strings.Fields(rows[i]), " "); got != want {
			t.Errorf("row %d is %q, want %q", i, got, want)
		}
	}
	raw, err := json.Marshal(list[1])
	must(t, err)
	if want := `"publishedTo":[],"export":"none","clients":[],"conditions":[]`; !strings.Contains(string(raw), want) {
		t.Errorf("%s does not hold %s", raw, want)
	}
}

// What makes no sense is listed, and a pool that is away is told.
func TestInventoryOfWhatIsBroken(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	e.create(request("w", volume.NFS))
	e.publish(to(v, nodeA))
	must(t, e.Pool.Put(parent+"/w", "tarn:request", "{"))
	must(t, e.Pool.UnmountByHand(parent+"/w"))
	e.wantInventory("tank/v open 192.0.2.21", "tank/w unknown  I PropertiesUnreadable")
	e.cfg.Exporters = e.Exporters(storage.Quiet())
	e.cfg.Exporters[volume.NFS] = down{}
	e.wantInventory("tank/v unknown  I ServerUnavailable", "tank/w unknown  I PropertiesUnreadable")
	e.cfg.Exporters = nil
	for _, state := range []string{"", "FAULTED"} {
		e.Pool.SetState(state)
		list, err := e.look().Inventory(t.Context())
		wantKind(t, err, fault.Unavailable)
		if len(list) > 0 {
			t.Errorf("%+v", list)
		}
	}
	e.Pool.SetState("ONLINE")
	e.cfg.Driver = "another.driver"
	_, err := e.look().Inventory(t.Context())
	wantKind(t, err, fault.Precondition, "belongs to driver")
}

// Looking changes nothing: not what is claimed, not what is exported.
func TestInventoryChangesNothing(t *testing.T) {
	e := newEnv(t)
	must(t, e.Pool.Inherit(t.Context(), parent, "tarn:driver"))
	must(t, e.Close())
	must(t, e.LoseConfigfs(t.Context()))
	before := e.Pool.Names()
	e.wantInventory()
	d, err := e.Pool.Get(t.Context(), parent)
	must(t, err)
	if _, claimed := d.Own("tarn:driver"); claimed || !slices.Equal(before, e.Pool.Names()) {
		t.Error("the pool is another now")
	}
	must(t, e.look().Close())
}
