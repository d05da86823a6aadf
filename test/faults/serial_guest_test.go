//go:build guest

package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Two volumes are never one disk: serials come from the volume, are the same
// for ever, and multipathd keeps the disks of two hosts apart.
func TestC23SerialsAreTheVolumesOwn(t *testing.T) {
	conf := "defaults {\n find_multipaths no\n user_friendly_names yes\n}\nblacklist {\n devnode \"^(vd|sr|zd|loop|dm-)\"\n}\n"
	step(t, os.WriteFile("/etc/multipath.conf", []byte(conf), 0o644))
	services(t, "start", "multipath")
	defer services(t, "stop", "multipath")
	d := ownDaemon(t, "c23") // another host: nothing is shared with the first one
	a, b := newBlock(t, oldAPI(), "first"), newBlock(t, inV1(daemonConn{d}), "first")
	b.dir += "-other"
	step(t, os.MkdirAll(b.staging(), 0o755))
	step(t, os.MkdirAll(filepath.Dir(b.target()), 0o755))
	a.up()
	b.up()
	if a.info["lun"] != b.info["lun"] || a.info["serial"] == b.info["serial"] {
		t.Errorf("%v and %v", a.info, b.info)
	}
	if numberOf(t, a.target()) == numberOf(t, b.target()) {
		t.Fatal("two volumes are one map")
	}
	write(t, a.data(), "written to A")
	wantZeros(t, b.data())
	write(t, b.data(), "written to B")
	wantText(t, a.data(), "written to A")
	b.down()

	r := creation("first-clone", "iscsi", 64*mib, asBlock())
	r.VolumeContentSource = fromVolume(a.id)
	clone := newVol(t, newAPI(), r)
	clone.publish()
	if clone.info["serial"] == a.info["serial"] {
		t.Error("a clone has its source's serial")
	}
	clone.unpublish()
	clone.remove()
	serial := func() string {
		t.Helper()
		text, err := os.ReadFile(backstoreOf(t, a.info["iqn"]) + "/wwn/vpd_unit_serial")
		step(t, err)
		return string(text)
	}
	before := serial()
	if !strings.Contains(before, a.info["serial"]) {
		t.Errorf("the LUN says %q, the context %q", before, a.info["serial"])
	}
	must[*csi.ControllerExpandVolumeResponse](t, "expand")(newAPI().ControllerExpandVolume(soon(t), &csi.ControllerExpandVolumeRequest{
		VolumeId: a.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 128 * mib}}))
	a.nodeUnpublish()
	a.unstage()
	steps := teardown(t, a.info["iqn"]) // the target is restarted
	host.Daemon.Kill()
	for _, do := range steps {
		step(t, do())
	}
	again(t, host.Daemon)
	if after := serial(); after != before {
		t.Errorf("the serial was %q and is %q", before, after)
	}
	a.unpublish()
	a.remove()
}
