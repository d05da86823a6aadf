package volume_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// halfway sets what comes before one property and is refused there, which `zfs
// set` may do.
type halfway struct {
	volume.ZFS
	at    *string
	cause error
}

func (h halfway) SetAll(ctx context.Context, name string, list []zfs.Setting) error {
	for k, s := range list {
		if s.Name == *h.at {
			*h.at = ""
			return errors.Join(h.ZFS.SetAll(ctx, name, list[:k]), h.cause)
		}
	}
	return h.ZFS.SetAll(ctx, name, list)
}

// own are the native properties that are set on the volume's dataset.
func (e *env) own(component string, names ...string) map[string]string {
	e.t.Helper()
	d, err := e.Pool.Get(e.t.Context(), parent+"/"+component)
	must(e.t, err)
	found := map[string]string{}
	for _, name := range names {
		if v, ok := d.Own(name); ok {
			found[name] = v
		}
	}
	return found
}

func (e *env) wantOwn(component string, want map[string]string, names ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.own(component, names...)); diff != "" {
		e.t.Errorf("properties of %s differ (-want +got)\n%s", component, diff)
	}
}

func TestModify(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(with(request("v", protocol), "zfs.compression", "lz4"))
		e.publish(to(v, nodeA))
		change := map[string]string{"zfs.compression": "zstd", "zfs.sync": "always"}
		must(t, e.Modify(t.Context(), v.ID, change))
		want := map[string]string{"compression": "zstd", "sync": "always"}
		e.wantOwn("v", want, "compression", "sync", "logbias")
		calls := e.Pool.Calls()
		must(t, e.Modify(t.Context(), v.ID, change))
		if n := e.Pool.Calls() - calls; n != 1 {
			t.Errorf("%d calls to find that nothing is to do", n)
		}
		// What is not named stays.
		must(t, e.Modify(t.Context(), v.ID, map[string]string{"zfs.logbias": "throughput"}))
		want["logbias"] = "throughput"
		e.wantOwn("v", want, "compression", "sync", "logbias")
		e.wantOpened(open(protocol, nodeA))
		// The request that made the volume still finds it, and changes nothing.
		e.create(with(request("v", protocol), "zfs.compression", "lz4"))
		e.wantOwn("v", want, "compression", "sync", "logbias")
	})
}

func TestModifyTakesBlockSizesInAnyForm(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	must(t, e.Modify(t.Context(), v.ID, map[string]string{"zfs.recordsize": "1M", "zfs.atime": "off"}))
	e.wantOwn("v", map[string]string{"recordsize": "1048576", "atime": "off"}, "recordsize", "atime")
}

// The mount follows the atime property, also where the property was set by a
// call that was cut off.
func TestModifyRemounts(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", volume.NFS))
	for _, value := range []string{"off", "on", "off"} {
		must(t, e.Modify(t.Context(), v.ID, map[string]string{"zfs.atime": value}))
		if got := e.Pool.Atime(parent + "/v"); got != (value == "on") {
			t.Errorf("atime=%s: the mount's is %t", value, got)
		}
	}
	must(t, e.Pool.Put(parent+"/v", "atime", "on"))
	must(t, e.Modify(t.Context(), v.ID, map[string]string{"zfs.atime": "on"}))
	if !e.Pool.Atime(parent + "/v") {
		t.Error("the mount does not follow the property")
	}
	must(t, e.Pool.UnmountByHand(parent+"/v"))
	must(t, e.Modify(t.Context(), v.ID, map[string]string{"zfs.atime": "off"}))
	e.publish(to(v, nodeA))
	if e.Pool.Atime(parent + "/v") {
		t.Error("the next mount does not follow the property")
	}
}

func TestModifyOfWhatCannotChange(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		bad := map[string]string{
			"zfs.nonsense": "on", "nonsense": "on", "": "", "compression": "lz4", "pool": "tank", "thin": "true", "protocol": protocol,
			"zfs.volblocksize": "16K", "zfs.xattr": "sa", "zfs.acltype": "posix", "zfs.mountpoint": "/etc", "csi.storage.k8s.io/pvc/name": "x",
		}
		if protocol == volume.ISCSI {
			bad["zfs.recordsize"], bad["zfs.atime"] = "16K", "off"
		}
		for key, value := range bad {
			err := e.Modify(t.Context(), v.ID, map[string]string{"zfs.compression": "zle", key: value})
			wantKind(t, err, fault.Invalid, "zfs.compression", "zfs.sync")
		}
		for key, value := range map[string]string{"zfs.copies": "4", "zfs.sync": "on", "zfs.compression": "a b", "zfs.dedup": "on\nx"} {
			wantKind(t, e.Modify(t.Context(), v.ID, map[string]string{"zfs.checksum": "sha256", key: value}), fault.Invalid, key)
		}
		wantKind(t, e.Modify(t.Context(), v.ID, nil), fault.Invalid, "zfs.compression")
		wantKind(t, e.Modify(t.Context(), "tank/none", map[string]string{"zfs.sync": "always"}), fault.NotFound)
		e.wantOwn("v", map[string]string{}, "compression", "checksum")
	})
}

// When ZFS refuses one value, what was set before it is as it was: own values
// set again, inherited ones inherited again.
func TestModifyIsNeverHalfDone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		at := ""
		e.cfg.ZFS = halfway{e.cfg.ZFS, &at, zfs.ErrBadValue}
		e.start()
		v := e.create(with(request("v", protocol), "zfs.compression", "lz4"))
		must(t, e.Pool.Put(parent, "logbias", "throughput"))
		names := []string{"compression", "logbias", "primarycache", "sync"}
		at = "sync"
		change := map[string]string{"zfs.compression": "zle", "zfs.logbias": "latency", "zfs.primarycache": "none", "zfs.sync": "always"}
		wantKind(t, e.Modify(t.Context(), v.ID, change), fault.Invalid)
		e.wantOwn("v", map[string]string{"compression": "lz4"}, names...)
		must(t, e.Modify(t.Context(), v.ID, change))
		e.wantOwn("v", map[string]string{"compression": "zle", "logbias": "latency", "primarycache": "none", "sync": "always"}, names...)
	})
}

// A daemon that is killed at any call leaves what the repeated call completes.
func TestModifyCutOffAtEachStep(t *testing.T) {
	change := map[string]string{"zfs.compression": "zle", "zfs.sync": "always"}
	for k := 0; ; k++ {
		e := newEnv(t)
		v := e.create(request("v", volume.NFS))
		e.Pool.CutAfter(k, errKilled)
		whole := e.Modify(t.Context(), v.ID, change) == nil
		e.Pool.Heal()
		e.start()
		must(t, e.Modify(t.Context(), v.ID, change))
		e.wantOwn("v", map[string]string{"compression": "zle", "sync": "always"}, "compression", "sync")
		if whole {
			return
		}
		if k == maxSteps {
			t.Fatal("it never ends")
		}
	}
}

// Mutable parameters win over the others, and are not what a repeat is compared
// by.
func TestCreateWithMutableParameters(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		r := with(request("v", protocol), "zfs.compression", "lz4")
		r.Mutable = map[string]string{"zfs.compression": "zstd", "zfs.sync": "always"}
		e.create(r)
		want := map[string]string{"compression": "zstd", "sync": "always"}
		e.wantOwn("v", want, "compression", "sync")
		for _, m := range []map[string]string{nil, {"zfs.compression": "off"}} {
			r.Mutable = m
			e.create(r)
			e.wantOwn("v", want, "compression", "sync")
		}
		r.Mutable = map[string]string{"zfs.xattr": "sa"}
		_, err := e.Create(t.Context(), r)
		wantKind(t, err, fault.Invalid, "zfs.xattr", "zfs.compression")
		r.Name = "w"
		_, err = e.Create(t.Context(), r)
		wantKind(t, err, fault.Invalid)
		e.wantDatasets("v")
	})
}

// Every mutable parameter is one that ZFS lets change.
func TestEveryMutableParameterCanChange(t *testing.T) {
	values := map[string]string{
		"zfs.atime": "off", "zfs.checksum": "sha256", "zfs.compression": "zle", "zfs.copies": "2", "zfs.dedup": "on", "zfs.logbias": "throughput",
		"zfs.primarycache": "metadata", "zfs.recordsize": "16K", "zfs.secondarycache": "none", "zfs.sync": "disabled",
	}
	if got := volume.MutableParameters(""); !slices.Equal(got, slices.Sorted(maps.Keys(values))) {
		t.Errorf("mutable are %q", got)
	}
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		for _, key := range volume.MutableParameters(protocol) {
			must(t, e.Modify(t.Context(), v.ID, map[string]string{key: values[key]}))
		}
	})
}
