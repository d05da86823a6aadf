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
