package volume_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// from is a request for a volume that is made from a source, of its size.
func from(r volume.CreateRequest, s volume.Source) volume.CreateRequest {
	r.Source, r.Size = s, volume.Range{}
	return r
}

func ofSnapshot(id string) volume.Source { return volume.Source{SnapshotID: id} }
func ofVolume(id string) volume.Source   { return volume.Source{VolumeID: id} }

func sized(r volume.CreateRequest, required, limit int64) volume.CreateRequest {
	r.Size = volume.Range{RequiredBytes: required, LimitBytes: limit}
	return r
}

// write puts one piece of data onto a volume.
func (e *env) write(name, protocol, data string) {
	e.t.Helper()
	if protocol == volume.ISCSI {
		must(e.t, e.Pool.Write(parent+"/"+name, 1<<20))
		e.Disk("/dev/zvol/" + parent + "/" + name).Write([]byte(data))
		return
	}
	must(e.t, os.WriteFile(filepath.Join(e.Pool.Content(parent+"/"+name), "data"), []byte(data), 0o644))
}

func (e *env) wantData(name, protocol, want string) {
	e.t.Helper()
	var got []byte
	if protocol == volume.ISCSI {
		got = e.Disk("/dev/zvol/" + parent + "/" + name).Data()
	} else {
		got, _ = os.ReadFile(filepath.Join(e.Pool.Content(parent+"/"+name), "data"))
	}
	if string(got) != want {
		e.t.Errorf("%s holds %q, want %q", name, got, want)
	}
}

// A volume that is made from a snapshot or from a volume has its data and its
// size, is a volume of its own, and lives on when its source is gone.
func TestClone(t *testing.T) {
	for name, source := range map[string]volume.Source{"snapshot": ofSnapshot("tank/v@s"), "volume": ofVolume("tank/v")} {
		t.Run(name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, e *env, protocol string) {
				v := e.create(request("v", protocol))
				e.write("v", protocol, "first")
				e.snapshot("s", v.ID)
				if source.SnapshotID != "" {
					e.write("v", protocol, "later")
				}
				r := from(request("c", protocol), source)
				c := e.create(r)
				if c.CapacityBytes != gib || c.Source != source || c.ID != "tank/c" {
					t.Errorf("the clone is %+v", c)
				}
				e.wantData("c", protocol, "first")
				e.write("c", protocol, "own")
				same := func(when string) {
					t.Helper()
					if diff := cmp.Diff(c, e.create(r)); diff != "" {
						t.Errorf("%s the answer differs:\n%s", when, diff)
					}
				}
				same("at once")
				e.start()
				same("after a restart")
				must(t, e.Delete(t.Context(), v.ID))
				must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
				same("after its source was deleted")
				e.start()
				same("after its source was deleted, and a restart")
				e.wantSnapshots()
				e.publish(to(c, nodeA))
				must(t, e.Unpublish(t.Context(), c.ID, nodeA))
				e.wantData("c", protocol, "own")
				must(t, e.Delete(t.Context(), c.ID))
				e.wantDatasets()
			})
		})
	}
}

// The root of a clone is its data's, whatever the parameters say.
func TestRootOfAClone(t *testing.T) {
	e := newEnv(t)
	e.create(with(request("v", "nfs"), "mode", "2770"))
	r := with(from(request("c", "nfs"), ofVolume("tank/v")), "mode", "0700")
	e.create(r)
	e.create(r)
	if got := e.Pool.RootOf(parent + "/c"); got.Mode != 0o2770 {
		t.Errorf("the root is %+v", got)
	}
}

func TestSizeOfAClone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.snapshot("s", "tank/v")
		for i, c := range []struct {
			required, limit, want int64
		}{
			{0, 0, gib}, {gib, 0, gib}, {0, gib, gib}, {2 * gib, 0, 2 * gib}, {2 * gib, 3 * gib, 2 * gib}, {gib - 1, 0, 0}, {0, gib - 1, 0}, {1, 2 * gib, 0},
			{1 << 60, 0, 0},
		} {
			for _, s := range []volume.Source{ofSnapshot("tank/v@s"), ofVolume("tank/v")} {
				name := fmt.Sprintf("c%d-%d", i, len(s.VolumeID))
				r := sized(from(request(name, protocol), s), c.required, c.limit)
				v, err := e.Create(t.Context(), r)
				if c.want == 0 {
					wantKind(t, err, fault.Range)
					if slices.Contains(e.datasets(), name) {
						t.Errorf("%s was made", name)
					}
					continue
				}
				must(t, err)
				d, err := e.ZFS().Get(t.Context(), parent+"/"+name)
				must(t, err)
				if got := max(d.Bytes("volsize"), d.Bytes("refquota")); v.CapacityBytes != c.want || got != c.want {
					t.Errorf("%+v from %s: %d bytes, the dataset %d", c, s, v.CapacityBytes, got)
				}
				must(t, e.Delete(t.Context(), v.ID))
			}
		}
		e.wantDatasets("v", "v@s")
		// What a source has grown to counts for a volume, what it was for a snapshot.
		property := map[string]string{volume.NFS: "refquota", volume.ISCSI: "volsize"}[protocol]
		must(t, e.Pool.Put(parent+"/v", property, fmt.Sprint(3*gib)))
		if v := e.create(from(request("old", protocol), ofSnapshot("tank/v@s"))); v.CapacityBytes != gib {
			t.Errorf("%d bytes from the snapshot", v.CapacityBytes)
		}
		if v := e.create(from(request("new", protocol), ofVolume("tank/v"))); v.CapacityBytes != 3*gib {
			t.Errorf("%d bytes from the volume", v.CapacityBytes)
		}
	})
}

// A source and a volume that cannot be made of it.
func TestCloneRefusals(t *testing.T) {
	e := newEnv(t, second)
	must(t, e.Pool.Make("tank/other"))
	must(t, e.Reconcile(t.Context()))
	e.create(request("n", "nfs"))
	x := with(request("x", "iscsi"), "fsType", "xfs")
	e.create(with(x, "zfs.volblocksize", "8K"))
	raw := request("raw", "iscsi")
	raw.Capabilities = []access.Capability{asBlock(access.SingleNodeWriter)}
	e.create(raw)
	e.snapshot("s", "tank/x")
	must(t, e.Pool.TakeSnapshot(parent+"/x@backup"))
	before := e.Pool.Names()
	n, i := request("c", "nfs"), request("c", "iscsi")
	ext4 := i
	ext4.Capabilities = []access.Capability{{Type: access.Mount, Mode: access.SingleNodeWriter, FSType: "ext4"}}
	for _, c := range []struct {
		r    volume.CreateRequest
		kind error
		says string
	}{
		{from(n, volume.Source{SnapshotID: "tank/x@s", VolumeID: "tank/n"}), fault.Invalid, "from a snapshot and from a volume"},
		{from(n, ofVolume("tank/none")), fault.NotFound, "tank/none"},
		{from(n, ofVolume("none/v")), fault.NotFound, "none"},
		{from(n, ofVolume("tank/n@s")), fault.NotFound, "POOL/NAME"},
		{from(n, ofSnapshot("tank/n@none")), fault.NotFound, "tank/n@none"},
		{from(n, ofSnapshot("tank/none@s")), fault.NotFound, "tank/none@s"},
		{from(n, ofSnapshot("tank/n")), fault.NotFound, "POOL/VOLUME@NAME"},
		{from(i, ofSnapshot("tank/x@backup")), fault.NotFound, "tank/x@backup"},
		{from(i, ofVolume("tank/n")), fault.Invalid, "protocol"},
		{from(n, ofSnapshot("tank/x@s")), fault.Invalid, "protocol"},
		{with(from(i, ofVolume("tank/x")), "zfs.volblocksize", "16K"), fault.Invalid, "volblocksize"},
		{with(from(i, ofSnapshot("tank/x@s")), "fsType", "ext4"), fault.Invalid, "xfs"},
		{from(ext4, ofSnapshot("tank/x@s")), fault.Invalid, "xfs"},
		{with(from(n, ofVolume("tank/n")), "pool", "other"), fault.Invalid, "pool"},
		{from(request("c", "nfs"), ofVolume("tank/c")), fault.NotFound, "tank/c"},
	} {
		_, err := e.Create(t.Context(), c.r)
		wantKind(t, err, c.kind, c.says)
		if diff := cmp.Diff(before, e.Pool.Names()); diff != "" {
			t.Fatalf("%+v: the pool differs:\n%s", c.r, diff)
		}
	}
	// What is not said is the source's; a block device may hold anything.
	e.create(from(request("c1", "iscsi"), ofVolume("tank/x")))
	e.create(with(from(request("c2", "iscsi"), ofSnapshot("tank/x@s")), "zfs.volblocksize", "8192"))
	e.create(from(request("c3", "iscsi"), ofVolume("tank/raw")))
	block := from(request("c4", "iscsi"), ofVolume("tank/x"))
	block.Capabilities = raw.Capabilities
	e.create(block)
	for _, name := range []string{"c1", "c2"} {
		d, err := e.ZFS().Get(t.Context(), parent+"/"+name)
		must(t, err)
		if v, _ := d.Value("tarn:request"); d.Bytes("volblocksize") != 8192 || !strings.Contains(v, `"zfs.volblocksize":"8192"`) || !strings.Contains(v, `"fsType":"xfs"`) {
			t.Errorf("%s has blocks of %d bytes, and request %s", name, d.Bytes("volblocksize"), v)
		}
	}
}

// The source is compared like every other field.
func TestCloneAgainFromAnotherSource(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.create(request("w", protocol))
		e.snapshot("s", "tank/v")
		e.snapshot("t", "tank/v")
		e.create(from(request("c", protocol), ofSnapshot("tank/v@s")))
		for _, s := range []volume.Source{{}, ofSnapshot("tank/v@t"), ofVolume("tank/v"), ofVolume("tank/w")} {
			_, err := e.Create(t.Context(), from(request("c", protocol), s))
			wantKind(t, err, fault.Exists, "content source")
		}
		_, err := e.Create(t.Context(), from(request("v", protocol), ofVolume("tank/w")))
		wantKind(t, err, fault.Exists, "content source")
		_, err = e.Create(t.Context(), from(request("v", protocol), ofVolume("tank/v")))
		wantKind(t, err, fault.Exists, "content source")
		_, err = e.Create(t.Context(), sized(from(request("c", protocol), ofSnapshot("tank/v@s")), 2*gib, 0))
		wantKind(t, err, fault.Exists, "size")
		e.wantDatasets("c", "v", "v@s", "v@t", "w")
	})
}

// A snapshot whose volume is deleted is restored by the same id, also when
// another volume has its volume's name.
func TestRestoreFromATombstone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.write("v", protocol, "old")
		e.snapshot("s", "tank/v")
		must(t, e.Delete(t.Context(), "tank/v"))
		e.start()
		e.create(from(request("v", protocol), ofSnapshot("tank/v@s")))
		e.wantData("v", protocol, "old")
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
		e.snapshot("s", "tank/v")
		must(t, e.DeleteSnapshot(t.Context(), "tank/v@s"))
		must(t, e.Delete(t.Context(), "tank/v"))
		e.wantDatasets()
	})
}

// Volumes that are clones of clones go one after the other once nothing depends
// on them, in whatever order they are deleted.
func TestCascade(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		for _, restart := range []bool{false, true} {
			e.create(request("a", protocol))
			e.snapshot("s", "tank/a")
			e.create(from(request("b", protocol), ofSnapshot("tank/a@s")))
			e.create(from(request("c", protocol), ofVolume("tank/b")))
			e.create(from(request("d", protocol), ofVolume("tank/c")))
			for _, name := range []string{"a", "b", "c"} {
				must(t, e.Delete(t.Context(), "tank/"+name))
			}
			must(t, e.DeleteSnapshot(t.Context(), "tank/a@s"))
			if restart {
				e.start()
			}
			if n := len(e.datasets()); n != 7 {
				t.Errorf("datasets are %q", e.datasets())
			}
			e.wantSnapshots()
			must(t, e.Delete(t.Context(), "tank/d"))
			e.wantDatasets()
		}
	})
}

// A clone whose making a power loss cut off between the kernel's two steps is
// made again; one in which there is something is not touched.
func TestBareCloneIsCompleted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.write("v", protocol, "first")
		e.snapshot("s", "tank/v")
		must(t, e.Pool.MakeClone(parent+"/v@s", parent+"/c"))
		r := from(request("c", protocol), ofSnapshot("tank/v@s"))
		_, err := e.Create(t.Context(), from(request("c", protocol), ofVolume("tank/v")))
		wantKind(t, err, fault.Exists, "not made by this driver")
		c := e.create(r)
		e.wantData("c", protocol, "first")
		must(t, e.Delete(t.Context(), c.ID))

		must(t, e.Pool.MakeClone(parent+"/v@s", parent+"/c"))
		must(t, e.Pool.Write(parent+"/c", 1<<20))
		_, err = e.Create(t.Context(), r)
		wantKind(t, err, fault.Exists, "not made by this driver")
		must(t, e.Pool.Destroy(t.Context(), parent+"/c"))

		// And what was cut off before a clone had its property.
		must(t, e.Pool.TakeSnapshot(parent+"/v@.clone.0123456789abcdef0123456789abcdef"))
		must(t, e.Pool.Put(parent+"/v@.clone.0123456789abcdef0123456789abcdef", "tarn:created", "2026-01-01T00:00:00Z"))
		must(t, e.Pool.MakeClone(parent+"/v@.clone.0123456789abcdef0123456789abcdef", parent+"/c"))
		e.create(from(request("c", protocol), ofVolume("tank/v")))
		must(t, e.Reconcile(t.Context()))
		if i := slices.IndexFunc(e.datasets(), func(s string) bool { return strings.Contains(s, "0123456789abcdef") }); i >= 0 {
			t.Errorf("%s is left", e.datasets()[i])
		}
	})
}

// A reconcile has nothing to do for clones that live, however many there are.
func TestReconcileLeavesClonesAlone(t *testing.T) {
	e := newEnv(t, only("iscsi"))
	e.create(request("v", "iscsi"))
	before := e.commands(func() { e.start() })
	for _, name := range []string{"a", "b", "c"} {
		e.create(from(request(name, "iscsi"), ofVolume("tank/v")))
	}
	e.wantCommands("the first reconcile after a start, with clones", before, func() { e.start() })
}

func TestCloneBudgets(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		e.snapshot("s", "tank/v")
		a, b := from(request("a", protocol), ofSnapshot("tank/v@s")), from(request("b", protocol), ofVolume("tank/v"))
		e.wantCommands("CreateVolume from a snapshot", 3, func() { e.create(sized(a, 2*gib, 0)) })
		e.wantCommands("CreateVolume from a volume", 4, func() { e.create(sized(b, 2*gib, 0)) })
		e.wantCommands("CreateVolume from a volume again", 1, func() { e.create(sized(b, 2*gib, 0)) })
		must(t, e.Delete(t.Context(), "tank/v")) // makes .tombstones
		e.create(request("w", protocol))
		e.create(from(request("x", protocol), ofVolume("tank/w")))
		e.wantCommands("DeleteVolume with a clone", 3, func() { must(t, e.Delete(t.Context(), "tank/w")) })
		e.wantCommands("DeleteVolume of the last clone", 3, func() { must(t, e.Delete(t.Context(), "tank/x")) })
		e.wantCommands("DeleteVolume of a clone", 2, func() { must(t, e.Delete(t.Context(), "tank/b")) })
		e.wantCommands("DeleteSnapshot with a clone", 3, func() { must(t, e.DeleteSnapshot(t.Context(), "tank/v@s")) })
		must(t, e.Delete(t.Context(), "tank/a"))
		e.wantDatasets()
	})
}

// A clone is mounted again after a reboot, before the daemon is there, once it
// was published.
func TestPublishedCloneComesBackAfterAReboot(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	c := e.create(from(request("c", "nfs"), ofVolume("tank/v")))
	e.wantCommands("ControllerPublishVolume of a clone", 2, func() { e.publish(to(c, nodeA)) })
	must(t, e.Pool.Reboot(true))
	if dir, ok, err := e.ZFS().MountedAt(t.Context(), parent+"/c"); !ok || err != nil {
		t.Errorf("it is mounted at %q: %v", dir, err)
	}
}

// A thick clone has its own reservation.
func TestThickClone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		e.create(request("v", protocol))
		r := sized(with(from(request("c", protocol), ofVolume("tank/v")), "thin", "false"), 2*gib, 0)
		e.create(r)
		d, err := e.ZFS().Get(t.Context(), parent+"/c")
		must(t, err)
		if got := d.Bytes("refreservation"); got < 2*gib {
			t.Errorf("%d bytes are reserved", got)
		}
		e.create(r)
		r.Name, r.Size.RequiredBytes = "huge", 1<<40
		_, err = e.Create(t.Context(), r)
		wantKind(t, err, fault.Exhausted)
		e.wantDatasets("c", "v", e.hiddenOf("v"))
	})
}

// hiddenOf is the one hidden snapshot of a volume.
func (e *env) hiddenOf(name string) string {
	for _, d := range e.datasets() {
		if strings.HasPrefix(d, name+"@.") {
			return d
		}
	}
	return "no hidden snapshot of " + name
}

func TestClonesCutOffAtEachStep(t *testing.T) {
	create := func(name string, s volume.Source) func(*env, string) (any, error) {
		return func(e *env, protocol string) (any, error) {
			return e.Create(e.t.Context(), sized(from(request(name, protocol), s), 2*gib, 0))
		}
	}
	del := func(id string) func(*env, string) (any, error) {
		return func(e *env, _ string) (any, error) { return nil, e.Delete(e.t.Context(), id) }
	}
	cutOffAtEachStep(t, []step{
		{"create", func(e *env, protocol string) (any, error) { return e.Create(e.t.Context(), request("v", protocol)) }},
		{"snapshot", func(e *env, _ string) (any, error) { return e.CreateSnapshot(e.t.Context(), "s", "tank/v", nil) }},
		{"clone the snapshot", create("a", ofSnapshot("tank/v@s"))},
		{"clone the volume", create("b", ofVolume("tank/v"))},
		{"clone the clone", create("c", ofVolume("tank/b"))},
		{"delete the snapshot", func(e *env, _ string) (any, error) { return nil, e.DeleteSnapshot(e.t.Context(), "tank/v@s") }},
		{"delete the volume", del("tank/v")},
		{"delete the clone in between", del("tank/b")},
		{"delete the clone of the snapshot", del("tank/a")},
		{"delete the last clone", del("tank/c")},
	})
}

// While a volume is cloned, source and target are both locked.
func TestCloneLocksItsSource(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", "nfs"))
	gate, entered := make(chan struct{}), make(chan struct{}, 64)
	e.cfg.ZFS = &gated{ZFS: e.cfg.ZFS, verb: "clone", gate: gate, entered: entered}
	e.start()
	done := make(chan error, 1)
	go func() {
		_, err := e.Create(t.Context(), from(request("c", "nfs"), ofVolume("tank/v")))
		done <- err
	}()
	<-entered
	wantKind(t, e.Delete(t.Context(), "tank/v"), fault.Busy, "CreateVolume")
	wantKind(t, e.Delete(t.Context(), "tank/c"), fault.Busy, "CreateVolume")
	close(gate)
	must(t, <-done)
}
