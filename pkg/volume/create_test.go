package volume_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

func TestCapabilities(t *testing.T) {
	fs := func(fsType string) access.Capability {
		return access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: fsType}
	}
	cases := []struct {
		protocol string
		c        access.Capability
		ok       bool
	}{
		{"nfs", mounted(access.SingleNodeWriter), true},
		{"nfs", mounted(access.SingleNodeReaderOnly), true},
		{"nfs", mounted(access.MultiNodeReaderOnly), true},
		{"nfs", mounted(access.MultiNodeSingleWriter), true},
		{"nfs", mounted(access.MultiNodeMultiWriter), true},
		{"nfs", mounted(access.SingleNodeMultiWriter), true},
		{"nfs", mounted(0), false},
		{"nfs", mounted(8), false},
		{"nfs", access.Capability{Mode: access.SingleNodeWriter}, false},
		{"nfs", asBlock(access.SingleNodeWriter), false},
		{"nfs", fs("nfs"), true},
		{"nfs", fs("nfs4"), true},
		{"nfs", fs("ext4"), false},
		{"iscsi", mounted(access.SingleNodeWriter), true},
		{"iscsi", mounted(access.SingleNodeReaderOnly), true},
		{"iscsi", mounted(access.MultiNodeReaderOnly), true},
		{"iscsi", mounted(access.MultiNodeSingleWriter), false},
		{"iscsi", mounted(access.MultiNodeMultiWriter), false},
		{"iscsi", fs("xfs"), true},
		{"iscsi", fs("btrfs"), false},
		{"iscsi", fs("nfs"), false},
		{"iscsi", asBlock(access.SingleNodeWriter), true},
		{"iscsi", asBlock(access.MultiNodeReaderOnly), true},
		{"iscsi", asBlock(access.MultiNodeSingleWriter), false},
		{"iscsi", asBlock(access.MultiNodeMultiWriter), true},
	}
	e := newEnv(t)
	for _, c := range cases {
		t.Run(c.protocol+" "+c.c.String(), func(t *testing.T) {
			name := "v" + strings.Map(func(r rune) rune {
				if r == '/' || r == ' ' {
					return '-'
				}
				return r
			}, c.protocol+c.c.String())
			r := request(name, c.protocol)
			r.Capabilities = []access.Capability{mounted(access.SingleNodeWriter), c.c}
			before := e.datasets()
			_, err := e.Create(t.Context(), r)
			if c.ok {
				must(t, err)
				return
			}
			wantKind(t, err, fault.Invalid)
			e.wantDatasets(before...)
		})
	}
}

// A repeat is answered as the first call was; one that differs names in what.
func TestCreateAgain(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		r := request("v", protocol)
		first := e.create(r)
		same := r
		same.Capabilities = []access.Capability{r.Capabilities[0], r.Capabilities[0]}
		same.Capabilities[1].MountFlags = []string{"noatime"} // may be sensitive: not compared
		same.Size = volume.Range{RequiredBytes: gib - 1, LimitBytes: 2 * gib}
		if diff := cmp.Diff(first, e.create(with(same, "csi.storage.k8s.io/pv/name", "x"))); diff != "" {
			t.Errorf("the answer differs (-first +repeat):\n%s", diff)
		}
		larger, smaller, other := r, r, r
		larger.Size.RequiredBytes = gib + 1
		smaller.Size = volume.Range{LimitBytes: gib - 1}
		other.Capabilities = []access.Capability{mounted(access.SingleNodeReaderOnly)}
		for _, c := range []struct {
			r    volume.CreateRequest
			says string
		}{
			{larger, "its size was"},
			{smaller, "its size was"},
			{other, "the capabilities were mount/SINGLE_NODE_WRITER"},
			{with(r, "zfs.compression", "lz4"), "parameter zfs.compression"},
			{with(r, "thin", "false"), "parameter thin"},
			{with(r, "mountOptions", "noatime"), "parameter mountOptions"},
		} {
			_, err := e.Create(t.Context(), c.r)
			wantKind(t, err, fault.Exists, c.says)
		}
		if diff := cmp.Diff(first, e.create(r)); diff != "" {
			t.Errorf("the refused calls have changed the volume:\n%s", diff)
		}
		e.start()
		if diff := cmp.Diff(first, e.create(r)); diff != "" {
			t.Errorf("the answer differs after a restart:\n%s", diff)
		}
	})
}

func TestCreateWithTheOtherProtocol(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	_, err := e.Create(t.Context(), request("v", "iscsi"))
	wantKind(t, err, fault.Exists, "protocol")
}

// Names that only differ in what an id cannot hold are two volumes.
func TestNames(t *testing.T) {
	e := newEnv(t, only("nfs"))
	seen := map[string]string{}
	for _, name := range []string{"v", "V", "v/x", "v x", "v@x", ".v", "../v", "ü", strings.Repeat("v", 49), strings.Repeat("v", 50), "v\n"} {
		v := e.create(request(name, "nfs"))
		if seen[v.ID] != "" {
			t.Errorf("%q and %q have the id %s", name, seen[v.ID], v.ID)
		}
		seen[v.ID] = name
		if again := e.create(request(name, "nfs")); again.ID != v.ID {
			t.Errorf("%q is %s and then %s", name, v.ID, again.ID)
		}
	}
	_, err := e.Create(t.Context(), request("", "nfs"))
	wantKind(t, err, fault.Invalid)
}

// What a power loss left without any property is completed.
func TestBareDatasetIsCompleted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		bytes := int64(0)
		if protocol == volume.ISCSI {
			bytes = 8 << 20 // not what is asked for
		}
		must(t, e.Pool.Bare(parent+"/v", bytes))
		v := e.create(request("v", protocol))
		if v.CapacityBytes != gib {
			t.Errorf("%d bytes", v.CapacityBytes)
		}
		d, err := e.ZFS().Get(t.Context(), parent+"/v")
		must(t, err)
		if got := max(d.Bytes("volsize"), d.Bytes("refquota")); got != gib {
			t.Errorf("the dataset has %d bytes", got)
		}
		e.publish(to(v, nodeA))
	})
}

// C55: a dataset without our mark and with anything in it is never touched.
func TestForeignDatasetIsUntouched(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		bytes := int64(0)
		if protocol == volume.ISCSI {
			bytes = 8 << 20
		}
		name := parent + "/v"
		for _, c := range []struct {
			what string
			do   func() error
		}{
			{"data", func() error { return e.Pool.Write(name, 1<<20) }},
			{"a snapshot", func() error { return e.Pool.TakeSnapshot(name + "@backup") }},
			{"a user property", func() error { return e.Pool.Put(name, "com.example:owner", "me") }},
		} {
			t.Run(c.what, func(t *testing.T) {
				must(t, e.Pool.Bare(name, bytes))
				must(t, c.do())
				before := e.datasets()
				_, err := e.Create(t.Context(), request("v", protocol))
				wantKind(t, err, fault.Exists, "rename it")
				must(t, e.Delete(t.Context(), "tank/v"))
				_, err = e.Publish(t.Context(), to(volume.Volume{ID: "tank/v"}, nodeA))
				wantKind(t, err, fault.NotFound)
				e.wantDatasets(before...)
				for _, d := range slices.Backward(before) {
					must(t, e.Pool.Destroy(t.Context(), parent+"/"+d))
				}
			})
		}
	})
}

// C11: many creations of one name at once make one dataset, and all that are
// answered are answered alike.
func TestConcurrentCreations(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		slow := make(chan struct{})
		e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "create", gate: slow, entered: make(chan struct{}, 64)}
		e.start()
		var wg sync.WaitGroup
		results := make(chan error, 16)
		volumes := make(chan volume.Volume, 16)
		for range 16 {
			wg.Go(func() {
				v, err := e.Create(context.Background(), request("v", protocol))
				results <- err
				if err == nil {
					volumes <- v
				}
			})
		}
		for range 15 { // all but the one that has the lock
			wantKind(t, <-results, fault.Busy, "CreateVolume has been running")
		}
		close(slow)
		wg.Wait()
		must(t, <-results)
		if diff := cmp.Diff(<-volumes, e.create(request("v", protocol))); diff != "" {
			t.Errorf("a repeat answers otherwise:\n%s", diff)
		}
		e.wantDatasets("v")
	})
}

// The caller's deadline ends the call and not the creation; what is asked
// meanwhile is busy, and what is asked afterwards has the result.
func TestCreateOutlivesItsCaller(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		slow, entered := make(chan struct{}), make(chan struct{}, 64)
		e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "create", gate: slow, entered: entered}
		e.start()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := e.Create(ctx, request("v", protocol))
		wantKind(t, err, context.DeadlineExceeded)
		<-entered
		_, err = e.Create(t.Context(), request("v", protocol))
		wantKind(t, err, fault.Busy, "since")
		wantKind(t, e.Delete(t.Context(), "tank/v"), fault.Busy)
		if running := e.Operations(); len(running) != 1 || running[0].What != "CreateVolume" {
			t.Errorf("operations are %+v", running)
		}
		other := request("other", protocol)
		close(slow)
		must(t, e.Drain(t.Context()))
		e.create(request("v", protocol))
		e.create(other)
		e.wantDatasets("other", "v")
	})
}

// gated lets calls of one verb through only when its gate is closed.
type gated struct {
	volume.ZFS
	verb    string
	gate    <-chan struct{}
	entered chan struct{}
}

func (g *gated) wait(verb string) {
	if verb == g.verb {
		g.entered <- struct{}{}
		<-g.gate
	}
}

func (g *gated) Create(ctx context.Context, s zfs.Spec) error {
	g.wait("create")
	return g.ZFS.Create(ctx, s)
}

func (g *gated) Clone(ctx context.Context, snapshot string, s zfs.Spec) error {
	g.wait("clone")
	return g.ZFS.Clone(ctx, snapshot, s)
}

func (g *gated) Children(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	list, err := g.ZFS.Children(ctx, parent)
	g.wait("children") // what is listed is old by the time it is used
	return list, err
}

func (g *gated) Snapshots(ctx context.Context, parent string) ([]zfs.Dataset, error) {
	list, err := g.ZFS.Snapshots(ctx, parent)
	g.wait("snapshots")
	return list, err
}

func (g *gated) Get(ctx context.Context, name string) (zfs.Dataset, error) {
	g.wait("get " + name)
	return g.ZFS.Get(ctx, name)
}
