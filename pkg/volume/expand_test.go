package volume_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	zfsfake "github.com/tarn-csi/tarn/pkg/zfs/fake"
)

func larger(id string, required, limit int64) volume.ExpandRequest {
	return volume.ExpandRequest{VolumeID: id, Size: volume.Range{RequiredBytes: required, LimitBytes: limit}}
}

// number is a property of the volume's dataset in bytes.
func (e *env) number(component, property string) int64 {
	e.t.Helper()
	d, err := e.Pool.Get(e.t.Context(), parent+"/"+component)
	must(e.t, err)
	return d.Bytes(property)
}

// wantSize checks the size that ZFS enforces.
func (e *env) wantSize(protocol string, bytes int64) {
	e.t.Helper()
	property := "refquota"
	if protocol == volume.ISCSI {
		property = "volsize"
	}
	if got := e.number("v", property); got != bytes {
		e.t.Errorf("%s is %d, want %d", property, got, bytes)
	}
}

// wantReserved checks that exactly a volume of that size is reserved.
func (e *env) wantReserved(protocol string, bytes int64) {
	e.t.Helper()
	want := bytes
	if protocol == volume.ISCSI {
		r := with(request("like", protocol), "thin", "false")
		r.Size.RequiredBytes = bytes
		v, err := e.Create(e.t.Context(), r)
		must(e.t, err)
		want = e.number("like", "refreservation")
		must(e.t, e.Delete(e.t.Context(), v.ID))
	}
	if got := e.number("v", "refreservation"); got != want {
		e.t.Errorf("%d bytes are reserved, want %d", got, want)
	}
}

// What a volume of 1 GiB gets for what is asked.
func TestExpandedSizes(t *testing.T) {
	const odd = 2*gib + 1
	cases := []struct {
		name            string
		protocol        string
		required, limit int64
		want            int64
		kind            error
	}{
		{"twice as large", "nfs", 2 * gib, 0, 2 * gib, nil},
		{"twice as large", "iscsi", 2 * gib, 2 * gib, 2 * gib, nil},
		{"a quota is not rounded", "nfs", odd, odd, odd, nil},
		{"rounded up to the block", "iscsi", odd, 0, 2*gib + 16<<10, nil},
		{"the limit is checked after rounding", "iscsi", odd, odd, 0, fault.Range},
		{"rounded within the limit", "iscsi", odd, 2*gib + 16<<10, 2*gib + 16<<10, nil},
		{"the same", "iscsi", gib, gib, gib, nil},
		{"less, and today's size is in the range", "nfs", gib / 2, 2 * gib, gib, nil},
		{"less, and any more will do", "iscsi", 1, 0, gib, nil},
		{"a shrink", "nfs", gib / 2, gib - 1, 0, fault.Range},
		{"a shrink", "iscsi", 0, gib - 1, 0, fault.Range},
		{"a limit alone", "nfs", 0, 2 * gib, gib, nil},
		{"nothing", "nfs", 0, 0, 0, fault.Invalid},
		{"negative", "iscsi", -1, 0, 0, fault.Invalid},
		{"more than the limit", "iscsi", 3 * gib, 2 * gib, 0, fault.Invalid},
		{"enormous", "nfs", volume.MaxBytes + 1, 0, 0, fault.Range},
		{"enormous", "iscsi", 1<<63 - 1, 1<<63 - 1, 0, fault.Range},
	}
	for _, c := range cases {
		t.Run(c.protocol+" "+c.name, func(t *testing.T) {
			e := newEnv(t)
			v := e.create(request("v", c.protocol))
			bytes, node, err := e.Expand(t.Context(), larger(v.ID, c.required, c.limit))
			if c.kind != nil {
				wantKind(t, err, c.kind)
				e.wantSize(c.protocol, gib)
				return
			}
			must(t, err)
			if bytes != c.want {
				t.Errorf("%d bytes, want %d", bytes, c.want)
			}
			if node != (c.protocol == volume.ISCSI) {
				t.Errorf("node expansion is required: %t", node)
			}
			e.wantSize(c.protocol, c.want)
			// The request that made the volume still finds it, with today's size.
			if again := e.create(request("v", c.protocol)); again.CapacityBytes != c.want {
				t.Errorf("CreateVolume again says %d bytes, want %d", again.CapacityBytes, c.want)
			}
		})
	}
}

func TestExpandOfWhatIsNotThere(t *testing.T) {
	e := newEnv(t)
	for _, id := range []string{"tank/none", "nopool/v", "../v"} {
		_, _, err := e.Expand(t.Context(), larger(id, gib, 0))
		wantKind(t, err, fault.NotFound)
	}
	must(t, e.Pool.Make(parent+"/foreign"))
	_, _, err := e.Expand(t.Context(), larger("tank/foreign", gib, 0))
	wantKind(t, err, fault.NotFound)
}

func TestExpandForACapabilityThatTheProtocolCannotServe(t *testing.T) {
	e := newEnv(t)
	r := larger(e.create(request("v", volume.NFS)).ID, 2*gib, 0)
	c := asBlock(access.SingleNodeWriter)
	r.Capability = &c
	_, _, err := e.Expand(t.Context(), r)
	wantKind(t, err, fault.Invalid, "nfs", "block")
	e.wantSize(volume.NFS, gib)
}

// An expansion takes one read and one change, whatever is to be set.
func TestExpandTakesTwoCommands(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		for _, thin := range []string{"true", "false"} {
			v := e.create(with(request("v"+thin, protocol), "thin", thin))
			before := e.Pool.Calls()
			_, _, err := e.Expand(t.Context(), larger(v.ID, 2*gib, 0))
			must(t, err)
			if n := e.Pool.Calls() - before; n != 2 {
				t.Errorf("thin=%s: %d calls", thin, n)
			}
		}
	})
}

// A published volume grows under its node, and the next publish and the next
// start find its device as large as it is.
func TestExpandWhilePublished(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.publish(to(v, nodeA))
		before := e.Targets()
		_, _, err := e.Expand(t.Context(), larger(v.ID, 2*gib, 0))
		must(t, err)
		if after := e.Targets(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the target was touched:\n%q\n%q", before, after)
		}
		e.wantOpened(open(protocol, nodeA))
		e.publish(to(v, nodeA))
		e.start()
		e.wantOpened(open(protocol, nodeA))
		must(t, e.Unpublish(t.Context(), v.ID, nodeA))
		e.publish(to(v, nodeB))
		e.wantOpened(open(protocol, nodeB))
	})
}

func TestThickVolumeStaysReserved(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(with(request("v", protocol), "thin", "false"))
		e.wantReserved(protocol, gib)
		must(t, e.Pool.Write(parent+"/v", gib/4))
		_, _, err := e.Expand(t.Context(), larger(v.ID, 3*gib, 0))
		must(t, err)
		e.wantSize(protocol, 3*gib)
		e.wantReserved(protocol, 3*gib)
	})
}

func TestThinVolumeReservesNothing(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		_, _, err := e.Expand(t.Context(), larger(v.ID, 1000*gib, 0))
		must(t, err)
		e.wantSize(protocol, 1000*gib)
		if n := e.number("v", "refreservation"); n != 0 {
			t.Errorf("%d bytes are reserved", n)
		}
	})
}

// A thick volume that finds no room is left as it was, without a change that
// anybody could see.
func TestExpandWithoutRoom(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(with(request("v", protocol), "thin", "false"))
		var changes int
		e.Pool.Observe(func(c zfsfake.Call) {
			if c.Verb == "set" {
				changes++
			}
		})
		_, _, err := e.Expand(t.Context(), larger(v.ID, 64*gib, 0))
		wantKind(t, err, fault.Exhausted, "tank/v", parent)
		if changes > 0 {
			t.Errorf("%d changes before the space was known", changes)
		}
		e.wantSize(protocol, gib)
		e.wantReserved(protocol, gib)
	})
}

// Where only ZFS can tell that there is no room, what was set is taken back.
func TestExpandThatZFSRefuses(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(with(request("v", protocol), "thin", "false"))
		must(t, e.Pool.Put(parent, "refquota", strconv.FormatInt(gib, 10))) // room is not looked at then
		_, _, err := e.Expand(t.Context(), larger(v.ID, 64*gib, 0))
		wantKind(t, err, fault.Exhausted)
		e.wantSize(protocol, gib)
		e.wantReserved(protocol, gib)
	})
}

// A repeat completes what was cut off between size and reservation, or takes it
// back when there is no room.
func TestExpandAfterAHalfSetSize(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(with(request("v", protocol), "thin", "false"))
		e.halfExpand(protocol, 3*gib)
		bytes, _, err := e.Expand(t.Context(), larger(v.ID, 3*gib, 3*gib))
		must(t, err)
		if bytes != 3*gib {
			t.Errorf("%d bytes", bytes)
		}
		e.wantSize(protocol, 3*gib)
		e.wantReserved(protocol, 3*gib)
	})
	e := newEnv(t)
	v := e.create(with(request("v", volume.NFS), "thin", "false"))
	e.halfExpand(volume.NFS, 64*gib)
	must(t, e.Pool.Put(parent, "refquota", strconv.FormatInt(gib, 10)))
	_, _, err := e.Expand(t.Context(), larger(v.ID, 64*gib, 0))
	wantKind(t, err, fault.Exhausted)
	e.wantSize(volume.NFS, gib)
	e.wantReserved(volume.NFS, gib)
}

// halfExpand sets a size without its reservation, as a kill or a power loss
// inside `zfs set` does.
func (e *env) halfExpand(protocol string, bytes int64) {
	e.t.Helper()
	if protocol == volume.NFS {
		must(e.t, e.Pool.Put(parent+"/v", "refquota", strconv.FormatInt(bytes, 10)))
		return
	}
	reserved := strconv.FormatInt(e.number("v", "refreservation"), 10)
	must(e.t, e.ZFS().SetAll(e.t.Context(), parent+"/v", []zfs.Setting{{Name: "volsize", Value: strconv.FormatInt(bytes, 10)}}))
	must(e.t, e.Pool.Put(parent+"/v", "refreservation", reserved))
}
