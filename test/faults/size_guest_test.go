//go:build guest

package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

func (v *vol) tryExpand(bytes int64) (int64, error) {
	r, err := newAPI().ControllerExpandVolume(soon(v.t), &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}})
	return r.GetCapacityBytes(), err
}

// An expansion for which there is no room leaves quota and reservation as they
// were, and a pair that was half set is set whole.
func TestC37AnExpansionWithoutRoomChangesNothing(t *testing.T) {
	r := creation("c37", "nfs", 64*mib, asFilesystem(""))
	r.Parameters["thin"] = "false"
	v := newVol(t, newAPI(), r)
	pair := func(want int64) {
		t.Helper()
		quota, reserved := bytesOf(t, "refquota", v.dataset()), bytesOf(t, "refreservation", v.dataset())
		if quota != want || reserved != want {
			t.Errorf("quota %d, reservation %d, want %d", quota, reserved, want)
		}
	}
	pair(64 * mib)
	_, err := v.tryExpand(200 << 30)
	wantCode(t, "without room", err, "", codes.ResourceExhausted, codes.OutOfRange)
	pair(64 * mib)
	for range 2 {
		if got, err := v.tryExpand(96 * mib); err != nil || got != 96*mib {
			t.Errorf("%d, %v", got, err)
		}
		pair(96 * mib)
	}
	// Killed between the two: zfs sets the one and not yet the other.
	machine.Sh(t, "zfs", "set", "refquota="+strconv.Itoa(128*mib), v.dataset())
	again(t, host.Daemon)
	if got, err := v.tryExpand(128 * mib); err != nil || got != 128*mib {
		t.Errorf("%d, %v", got, err)
	}
	pair(128 * mib)
	v.remove()
}

// The capacity is what the parent dataset has, not the pool.
func TestC46CapacityIsTheParents(t *testing.T) {
	d := ownDaemon(t, "c46")
	parent := host.Pool.Name + "/c46"
	machine.Sh(t, "zfs", "set", "quota=256M", parent)
	fill := filepath.Join(host.Pool.Dir, parent, "used")
	raw := make([]byte, 32*mib)
	for k := range raw {
		raw[k] = byte(k*k>>7 + k) // nothing that compresses away
	}
	step(t, os.WriteFile(fill, raw, 0o600))
	machine.Sh(t, "zpool", "sync", host.Pool.Name)
	for _, p := range []plugin{inV0(daemonConn{d}), inV1(daemonConn{d})} {
		for _, parameters := range []map[string]string{nil, {"pool": "p"}} {
			got, err := p.GetCapacity(soon(t), &csi.GetCapacityRequest{Parameters: parameters})
			want := bytesOf(t, "available", parent)
			if err != nil || want > 256*mib || got.GetAvailableCapacity() < want-mib || got.GetAvailableCapacity() > want+mib {
				t.Errorf("%v: %v, %v, available %d", parameters, got, err, want)
			}
		}
		_, err := p.GetCapacity(soon(t), &csi.GetCapacityRequest{Parameters: map[string]string{"pool": "nowhere"}})
		wantCode(t, "an unknown pool", err, "nowhere", codes.InvalidArgument)
	}
	// The parent itself is gone: an error and a line, and no zero.
	machine.Sh(t, "zfs", "rename", parent, parent+"-away")
	_, err := inV1(daemonConn{d}).GetCapacity(soon(t), &csi.GetCapacityRequest{})
	machine.Sh(t, "zfs", "rename", parent+"-away", parent)
	wantCode(t, "a missing parent", err, "", codes.Unavailable, codes.FailedPrecondition, codes.NotFound, codes.Internal)
	if !strings.Contains(d.Log(), "GetCapacity") || !strings.Contains(d.Log(), "reason=") {
		t.Error("nothing of it is in the log")
	}
}

// Sizes are rounded up to the block, within the limit.
func TestC47SizesAreRoundedWithinTheLimit(t *testing.T) {
	const asked, rounded = 4_000_000_000, 4_000_006_144
	for _, p := range []plugin{oldAPI(), newAPI()} {
		name := "c47-" + p.version
		request := func(name string, required, limit int64) *csi.CreateVolumeRequest {
			r := creation(name, "iscsi", required, asBlock())
			r.CapacityRange.LimitBytes = limit
			return r
		}
		for range 2 {
			v, err := p.CreateVolume(soon(t), request(name, asked, 0))
			if err != nil || v.GetVolume().GetCapacityBytes() != rounded || bytesOf(t, "volsize", host.Pool.Parent()+"/"+name) != rounded {
				t.Errorf("%v, %v", v, err)
			}
		}
		for _, c := range []struct {
			required, limit int64
			want            []codes.Code
		}{
			{asked, asked, []codes.Code{codes.OutOfRange}},
			{5 << 30, 3 << 30, []codes.Code{codes.InvalidArgument, codes.OutOfRange}},
			{-1, 0, []codes.Code{codes.InvalidArgument, codes.OutOfRange}},
		} {
			_, err := p.CreateVolume(soon(t), request(name+"-refused", c.required, c.limit))
			wantCode(t, "refused", err, "", c.want...)
			if machine.Run("zfs", "list", host.Pool.Parent()+"/"+name+"-refused") == nil {
				t.Errorf("required %d, limit %d: a zvol is made", c.required, c.limit)
			}
		}
		small, err := p.CreateVolume(soon(t), request(name+"-small", 0, mib))
		if err != nil || small.GetVolume().GetCapacityBytes() > mib {
			t.Errorf("limit 1 MiB: %v, %v", small, err)
		}
		open := request(name+"-open", 0, 0)
		open.CapacityRange = nil
		standard, err := p.CreateVolume(soon(t), open)
		if err != nil || standard.GetVolume().GetCapacityBytes() != 1<<30 {
			t.Errorf("no range: %v, %v", standard, err)
		}
		for _, id := range []string{name + "-small", name + "-open"} {
			must[*csi.DeleteVolumeResponse](t, id)(p.DeleteVolume(soon(t), &csi.DeleteVolumeRequest{VolumeId: "p/" + id}))
		}
		if p.version == "v1" {
			v := &vol{t: t, id: "p/" + name}
			if got, err := v.tryExpand(5369896960); err != nil || got < 5369896960 || got%16384 != 0 {
				t.Errorf("expanded to %d, %v", got, err)
			}
		}
		must[*csi.DeleteVolumeResponse](t, name)(p.DeleteVolume(soon(t), &csi.DeleteVolumeRequest{VolumeId: "p/" + name}))
	}
}
