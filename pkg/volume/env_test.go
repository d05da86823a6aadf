package volume_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// env is a storage host on which services can be started one after the other.
type env struct {
	*storage.Host
	*volume.Service
	t   *testing.T
	cfg volume.Config
}

const (
	driver  = "csi.tarn.example"
	parent  = storage.Parent
	nodeA   = "worker-a@192.0.2.21"
	nodeB   = "worker-b@192.0.2.22"
	address = "192.0.2.10"
)

// newEnv starts a service on a host of its own; change may change its
// configuration, then and at each later start.
func newEnv(t *testing.T, change ...func(*volume.Config)) *env {
	t.Helper()
	h := storage.New(t)
	h.Pool.SetFresh(0)
	pool := h.ZFS()
	e := &env{Host: h, t: t, cfg: volume.Config{
		Driver: driver,
		Pools: []volume.PoolConfig{{
			Name: "tank", Parent: parent, Addresses: []netip.Addr{netip.MustParseAddr(address)}, ISCSIPort: 3260, CHAP: chap.Derived,
		}},
		Naming: h.Naming, MasterKey: chap.Key(strings.Repeat("k", chap.KeySize)),
		ZFS: pool, Host: pool, Devices: storage.Devices{Host: h}, Secrets: chap.Store{Dir: h.Dir("chap")},
		Operation: 5 * time.Second, Rest: time.Minute, LockDir: h.Dir("run"), Log: storage.Quiet(),
	}}
	for _, c := range change {
		c(&e.cfg)
	}
	e.start()
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// start starts another service on the same host, as after a kill: nothing of
// the first one is told.
func (e *env) start() {
	e.t.Helper()
	if e.Service != nil {
		if err := e.Close(); err != nil {
			e.t.Fatal(err)
		}
	}
	cfg := e.cfg
	if cfg.Exporters == nil {
		cfg.Exporters = e.Exporters(storage.Quiet())
	}
	s, err := volume.New(cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.Service = s
	if err := s.Reconcile(context.Background()); err != nil {
		e.t.Logf("first reconcile: %v", err)
	}
}

// only serves one protocol.
func only(protocol string) func(*volume.Config) {
	return func(c *volume.Config) {
		c.Exporters = map[string]export.Exporter{protocol: nothing{}}
	}
}

// nothing is an exporter where no kernel is of interest.
type nothing struct{}

func (nothing) Ensure(context.Context, export.Volume) error   { return nil }
func (nothing) Remove(context.Context, string) error          { return nil }
func (nothing) List(context.Context) ([]export.Status, error) { return nil, nil }
func (nothing) Look(context.Context, string) (export.Status, bool, error) {
	return export.Status{}, false, nil
}
func (nothing) Ready(context.Context) error { return nil }

func mounted(m access.Mode) access.Capability { return access.Capability{Type: access.Mount, Mode: m} }
func asBlock(m access.Mode) access.Capability { return access.Capability{Type: access.Block, Mode: m} }

const gib = 1 << 30

// request is for a volume of 1 GiB.
func request(name, protocol string) volume.CreateRequest {
	return volume.CreateRequest{
		Name: name, Size: volume.Range{RequiredBytes: gib},
		Capabilities: []access.Capability{mounted(access.SingleNodeWriter)},
		Parameters:   map[string]string{"protocol": protocol},
	}
}

func with(r volume.CreateRequest, key, value string) volume.CreateRequest {
	m := map[string]string{key: value}
	for k, v := range r.Parameters {
		if k != key {
			m[k] = v
		}
	}
	r.Parameters = m
	return r
}

func (e *env) create(r volume.CreateRequest) volume.Volume {
	e.t.Helper()
	v, err := e.Create(e.t.Context(), r)
	must(e.t, err)
	return v
}

func to(v volume.Volume, node string) volume.PublishRequest {
	return volume.PublishRequest{VolumeID: v.ID, NodeID: node, Capability: mounted(access.SingleNodeWriter)}
}

func (e *env) publish(r volume.PublishRequest) map[string]string {
	e.t.Helper()
	info, err := e.Publish(e.t.Context(), r)
	must(e.t, err)
	return info
}

// opened lists to whom the host is open now, whatever the protocol: exports and
// initiators.
func (e *env) opened() []string {
	var list []string
	for _, line := range e.Exports() {
		path, client, _ := strings.Cut(line, "\t")
		host, options, _ := strings.Cut(client, "(")
		list = append(list, path[strings.LastIndexByte(path, '/')+1:]+" "+host+" "+options[:2])
	}
	for _, line := range e.Targets() {
		_, rest, ok := strings.Cut(line, "/acls/")
		if name, end, _ := strings.Cut(rest, "/"); ok && name != "" && end == "" {
			list = append(list, name[strings.LastIndexByte(name, ':')+1:])
		}
	}
	slices.Sort(list)
	return list
}

// wantOpened compares opened.
func (e *env) wantOpened(want ...string) {
	e.t.Helper()
	if got := e.opened(); !slices.Equal(got, want) {
		e.t.Errorf("open to %q, want %q", got, want)
	}
}

// datasets are those below the parent, without the place of the tombstones,
// which is made with the first claim.
func (e *env) datasets() []string {
	var list []string
	for _, name := range e.Pool.Names() {
		if rest, ok := strings.CutPrefix(name, parent+"/"); ok && rest != ".tombstones" {
			list = append(list, rest)
		}
	}
	return list
}

func (e *env) wantDatasets(want ...string) {
	e.t.Helper()
	if got := e.datasets(); !slices.Equal(got, want) {
		e.t.Errorf("datasets are %q, want %q", got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKind fails the test unless err is of the kind and says the words.
func wantKind(t testing.TB, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want the kind %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// eachProtocol runs a test on a host for each.
func eachProtocol(t *testing.T, test func(t *testing.T, e *env, protocol string), change ...func(*volume.Config)) {
	for _, protocol := range []string{volume.NFS, volume.ISCSI} {
		t.Run(protocol, func(t *testing.T) { test(t, newEnv(t, change...), protocol) })
	}
}
