package volume_test

import (
	"math"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// C47: what a volume gets for what is asked.
func TestSizes(t *testing.T) {
	const mib = 1 << 20
	cases := []struct {
		name            string
		protocol        string
		required, limit int64
		want            int64
		kind            error
	}{
		{"rounded up to the block", "iscsi", 4000000000, 0, 4000006144, nil},
		{"a quota is not rounded", "nfs", 4000000000, 0, 4000000000, nil},
		{"no multiple within the limit", "iscsi", 4000000000, 4000000000, 0, fault.Range},
		{"an exact quota", "nfs", 4000000000, 4000000000, 4000000000, nil},
		{"rounded within the limit", "iscsi", 4000000000, 4000006144, 4000006144, nil},
		{"one byte less", "iscsi", 4000000000, 4000006143, 0, fault.Range},
		{"more than the limit", "iscsi", 5 * gib, 3 * gib, 0, fault.Invalid},
		{"negative", "iscsi", -1, 0, 0, fault.Invalid},
		{"a negative limit", "nfs", 0, -1, 0, fault.Invalid},
		{"none", "iscsi", 0, 0, gib, nil},
		{"none", "nfs", 0, 0, gib, nil},
		{"a limit above the default", "nfs", 0, 5 * gib, gib, nil},
		{"a limit below the default", "iscsi", 0, 100*mib + 1, 100 * mib, nil},
		{"a limit of 1 MiB", "nfs", 0, mib, mib, nil},
		{"a limit below the minimum", "nfs", 0, mib - 1, 0, fault.Range},
		{"one byte", "nfs", 1, 0, mib, nil},
		{"enormous", "nfs", math.MaxInt64, 0, 0, fault.Range},
		{"enormous", "iscsi", math.MaxInt64, 0, 0, fault.Range},
		{"enormous with its limit", "iscsi", math.MaxInt64, math.MaxInt64, 0, fault.Range},
		{"a byte too much", "iscsi", volume.MaxBytes + 1, 0, 0, fault.Range},
		{"below what the filesystem needs", "iscsi", mib, 0, 0, fault.Range},
		{"a limit below what it needs", "iscsi", 0, mib, 0, fault.Range},
	}
	for _, c := range cases {
		t.Run(c.protocol+" "+c.name, func(t *testing.T) {
			e := newEnv(t)
			r := request("v", c.protocol)
			r.Size = volume.Range{RequiredBytes: c.required, LimitBytes: c.limit}
			v, err := e.Create(t.Context(), r)
			if c.kind != nil {
				wantKind(t, err, c.kind)
				e.wantDatasets()
				return
			}
			must(t, err)
			if v.CapacityBytes != c.want {
				t.Errorf("%d bytes, want %d", v.CapacityBytes, c.want)
			}
			again := e.create(r)
			if again.CapacityBytes != v.CapacityBytes {
				t.Errorf("a repeat says %d bytes, the first call %d", again.CapacityBytes, v.CapacityBytes)
			}
		})
	}
}

// A block volume has no filesystem that needs room.
func TestSmallBlockVolume(t *testing.T) {
	e := newEnv(t)
	r := request("v", "iscsi")
	r.Capabilities = []access.Capability{asBlock(access.SingleNodeWriter)}
	r.Size = volume.Range{LimitBytes: 1 << 20}
	if v := e.create(r); v.CapacityBytes != 1<<20 {
		t.Errorf("%d bytes", v.CapacityBytes)
	}
}

// A thick volume that does not fit is refused, and leaves nothing.
func TestNoSpace(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		r := with(request("v", protocol), "thin", "false")
		r.Size = volume.Range{RequiredBytes: 2 * 64 * gib}
		_, err := e.Create(t.Context(), r)
		wantKind(t, err, fault.Exhausted)
		e.wantDatasets()
	})
}

// A size that is below what a filesystem needs gets that, if the limit has room
// for it.
func TestSizeBelowTheFilesystemsMinimum(t *testing.T) {
	const least = 300 << 20
	for _, c := range []struct{ required, limit, want int64 }{
		{100 << 20, 0, 0}, {100 << 20, least - 1, 0}, {100 << 20, least, least}, {100 << 20, gib, least}, {least, gib, least},
	} {
		e := newEnv(t)
		r := with(request("v", volume.ISCSI), "fsType", "xfs")
		r.Size = volume.Range{RequiredBytes: c.required, LimitBytes: c.limit}
		v, err := e.Create(t.Context(), r)
		if c.want == 0 {
			wantKind(t, err, fault.Range, "xfs")
			continue
		}
		must(t, err)
		if v.CapacityBytes != c.want {
			t.Errorf("%+v: %d bytes", c, v.CapacityBytes)
		}
		e.create(r)
	}
}

// The largest size that GetCapacity tells can be made, and no larger one; the
// smallest, too. Asking changes nothing.
func TestCapacityTellsWhatCanBeMade(t *testing.T) {
	xfs := mounted(access.SingleNodeWriter)
	xfs.FSType = "xfs"
	for _, c := range []struct {
		name       string
		parameters map[string]string
		caps       []access.Capability
		least      int64
	}{
		{"nfs", map[string]string{"protocol": "nfs"}, nil, 1 << 20},
		{"ext4 by default", map[string]string{"protocol": "iscsi"}, nil, 8 << 20},
		{"xfs by the parameters", map[string]string{"protocol": "iscsi", "fsType": "xfs"}, nil, 300 << 20},
		{"xfs by the capability", map[string]string{"protocol": "iscsi"}, []access.Capability{xfs}, 300 << 20},
		{"block", map[string]string{"protocol": "iscsi"}, []access.Capability{asBlock(access.SingleNodeWriter)}, 1 << 20},
		{"small blocks", map[string]string{"protocol": "iscsi", "zfs.volblocksize": "4K"}, []access.Capability{asBlock(access.SingleNodeWriter)}, 1 << 20},
	} {
		for _, thin := range []string{"true", "false"} {
			t.Run(c.name+" thin="+thin, func(t *testing.T) {
				e := newEnv(t)
				r := volume.CreateRequest{Name: "v", Parameters: c.parameters, Capabilities: c.caps}
				if c.caps == nil {
					r.Capabilities = []access.Capability{mounted(access.SingleNodeWriter)}
				}
				r = with(r, "thin", thin)
				before := e.Pool.Names()
				available, least, most, err := e.Capacity(t.Context(), r.Parameters, c.caps)
				must(t, err)
				if least != c.least || available <= 0 || thin == "true" && most != volume.MaxBytes || thin == "false" && most > available {
					t.Errorf("available %d, from %d to %d", available, least, most)
				}
				if len(e.Pool.Names()) != len(before) {
					t.Error("asking made something")
				}
				r.Size = volume.Range{LimitBytes: least}
				must(t, e.Delete(t.Context(), e.create(r).ID))
				r.Size = volume.Range{RequiredBytes: most}
				must(t, e.Delete(t.Context(), e.create(r).ID))
				r.Size.RequiredBytes = most + 1
				if _, err := e.Create(t.Context(), r); err == nil {
					t.Errorf("%d bytes can be made, too", r.Size.RequiredBytes)
				}
			})
		}
	}
}

// Without a protocol the first is taken that can serve the rest.
func TestCapacityWithoutAProtocol(t *testing.T) {
	e := newEnv(t)
	for _, parameters := range []map[string]string{nil, {"zfs.recordsize": "1M"}, {"fsType": "xfs"}} {
		_, _, _, err := e.Capacity(t.Context(), parameters, nil)
		must(t, err)
	}
	shared := []access.Capability{mounted(access.MultiNodeMultiWriter)}
	_, least, _, err := e.Capacity(t.Context(), nil, shared)
	must(t, err)
	if least != volume.MinBytes {
		t.Errorf("the least is %d", least)
	}
	_, _, _, err = e.Capacity(t.Context(), map[string]string{"protocol": "iscsi"}, shared)
	wantKind(t, err, fault.Invalid)
}
