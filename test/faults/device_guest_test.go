//go:build guest

package faults

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// A zvol's device is waited for within the call; one that does not come is told
// so, and the next call goes on with the same zvol.
func TestC13TheDeviceOfAZvolIsLate(t *testing.T) {
	hold := func() { machine.Sh(t, "udevadm", "control", "--stop-exec-queue") }
	letGo := func() { machine.Sh(t, "udevadm", "control", "--start-exec-queue") }
	t.Cleanup(letGo)
	for k, p := range []plugin{oldAPI(), newAPI()} {
		hold()
		name := "c13-" + p.version
		v := newVol(t, p, creation(name, "iscsi", 64*mib, asBlock()))
		device := "/dev/zvol/" + v.dataset()
		if exists(device) {
			t.Fatal("the link is there, so nothing is late")
		}
		published := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), rpcTimeout)
		if k == 0 { // it never comes
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second)
		}
		go func() {
			_, err := p.ControllerPublishVolume(ctx, v.publishRequest())
			published <- err
		}()
		if k == 0 {
			wantCode(t, "a device that never comes", <-published, "", codes.Unavailable, codes.DeadlineExceeded)
			if exists(device) {
				t.Error("something was made in the device's place")
			}
			letGo()
		} else {
			select {
			case err := <-published:
				t.Errorf("the publish does not wait: %v", err)
				letGo()
			case <-time.After(time.Second):
				letGo()
				if err := <-published; err != nil {
					t.Errorf("the device came, and the publish: %v", err)
				}
			}
		}
		cancel()
		r := creation(name, "iscsi", 64*mib, asBlock())
		eventually(t, "the next create succeeds", 2*time.Minute, func() bool {
			_, err := p.CreateVolume(soon(t), r)
			return err == nil
		})
		eventually(t, "the next publish succeeds", 2*time.Minute, func() bool {
			answer, err := p.ControllerPublishVolume(soon(t), v.publishRequest())
			v.info = answer.GetPublishContext()
			return err == nil
		})
		if st, err := os.Stat(device); err != nil || st.Mode()&os.ModeDevice == 0 {
			t.Errorf("%s: %v, %v", device, st, err)
		}
		if k == 0 {
			v.stage()
			v.unstage()
		}
		v.unpublish()
		v.remove()
	}
}

// After a boot without modules targets come back as they were, except that of a
// zvol that is not there, and what is made afterwards works.
func TestC50TargetsComeBackWithoutModules(t *testing.T) {
	var list []*vol
	for k, name := range []string{"c50-a", "c50-b", "c50-broken"} {
		v := newBlock(t, []plugin{oldAPI(), newAPI()}[k%2], name)
		v.publish()
		list = append(list, v)
	}
	look := func(v *vol) map[string]string {
		t.Helper()
		seen := map[string]string{}
		tpg := filepath.Join(targets, v.info["iqn"], "tpgt_1")
		for _, path := range []string{tpg + "/enable", tpg + "/attrib/authentication", theOne(t, tpg+"/acls/*/auth/userid"), theOne(t, tpg+"/acls/*/auth/password"),
			backstoreOf(t, v.info["iqn"]) + "/wwn/vpd_unit_serial", theOne(t, tpg+"/lun/lun_*/alua_tg_pt_gp")} {
			b, err := os.ReadFile(path)
			step(t, err)
			seen[path] = string(b)
		}
		return seen
	}
	before := []map[string]string{look(list[0]), look(list[1])}
	var steps [][]func() error
	for _, v := range list {
		all := teardown(t, v.info["iqn"])
		steps = append(steps, all[:len(all)-1]) // the HBA is shared
	}
	hba := filepath.Dir(backstoreOf(t, list[0].info["iqn"]))
	host.Daemon.Kill()
	for _, all := range steps {
		for _, do := range all {
			step(t, do())
		}
	}
	step(t, os.Remove(hba))
	step(t, os.Remove(targets))
	machine.Sh(t, "modprobe", "-r", "iscsi_target_mod", "target_core_iblock")
	if exists(targets) {
		t.Fatal("the fabric is still there, so this is no boot")
	}
	broken := list[2].dataset()
	machine.Sh(t, "zfs", "set", "volmode=none", broken)
	eventually(t, "the device goes", time.Minute, func() bool { return !exists("/dev/zvol/" + broken) })
	again(t, host.Daemon)
	must[*csi.ProbeResponse](t, "Probe")(newAPI().Probe(soon(t), &csi.ProbeRequest{}))
	for k, v := range list[:2] {
		eventually(t, v.id+" is exported again", 2*time.Minute, func() bool {
			b, err := os.ReadFile(filepath.Join(targets, v.info["iqn"], "tpgt_1/enable"))
			return err == nil && strings.TrimSpace(string(b)) == "1"
		})
		after := look(v)
		for path, value := range before[k] {
			if after[path] != value {
				t.Errorf("%s was %q and is %q", path, value, after[path])
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	_, err := list[2].p.ControllerPublishVolume(ctx, list[2].publishRequest())
	cancel()
	if err != nil {
		wantCode(t, "the volume without a device", err, "", codes.Unavailable, codes.DeadlineExceeded, codes.FailedPrecondition)
	} else if !exists("/dev/zvol/" + broken) { // a device that is gone is made anew
		t.Error("the volume without a device is published")
	}
	if !exists(targets) || !exists(filepath.Join(targets, list[0].info["iqn"])) {
		t.Error("the failure took the others with it")
	}
	fresh := newBlock(t, newAPI(), "c50-new")
	fresh.up()
	fresh.down()
	list[0].stage()
	list[0].unstage()
	machine.Sh(t, "zfs", "set", "volmode=dev", broken)
	eventually(t, "the device is back", time.Minute, func() bool { return exists("/dev/zvol/" + broken) })
	for _, v := range list {
		eventually(t, "no call works on "+v.id, time.Minute, func() bool { return v.tryUnpublish() == nil })
		v.remove()
	}
}

// An id or a parameter is never a path: nothing outside of the driver's own
// volumes is changed, mounted or destroyed.
func TestC55HostileIdsTouchNothing(t *testing.T) {
	victim, unmarked := host.Pool.Name+"/victim", host.Pool.Parent()+"/unmarked"
	machine.Sh(t, "zfs", "create", victim)
	machine.Sh(t, "zfs", "create", unmarked)
	t.Cleanup(func() {
		machine.Sh(t, "zfs", "destroy", "-r", victim)
		machine.Sh(t, "zfs", "destroy", "-r", unmarked)
	})
	for _, dataset := range []string{victim, unmarked} {
		step(t, os.WriteFile(filepath.Join(host.Pool.Dir, dataset, "keep.txt"), []byte("kept"), 0o600))
	}
	machine.Sh(t, "zfs", "snapshot", unmarked+"@snap")
	good := newNFS(t, newAPI(), "pvc-1")
	good.publish()
	state := func() string {
		t.Helper()
		table, err := os.ReadFile("/proc/self/mounts")
		step(t, err)
		return machine.Sh(t, "zfs", "list", "-H", "-o", "name,mounted,mountpoint", "-t", "all", "-r", host.Pool.Name) + string(table) +
			strings.Join(exportsOf(t, filepath.Join(host.Pool.Dir, good.dataset())), "\n")
	}
	before := state()
	ids := []string{"../victim", "p/../victim", "faults/csi/../victim", "p/pvc-1/../../etc", "/etc", "-r", "p/-r", "p/pvc-1 -R", "p/pvc-1@snap", "p/unmarked@snap", "p/unmarked"}
	for k, id := range ids {
		p := []plugin{oldAPI(), newAPI()}[k%2]
		_, err := p.DeleteVolume(soon(t), &csi.DeleteVolumeRequest{VolumeId: id})
		if id == "p/unmarked" { // it is well formed, and not ours
			wantCode(t, "delete "+id, err, "", codes.OK, codes.FailedPrecondition, codes.NotFound)
		} else {
			wantCode(t, "delete "+id, err, "", codes.OK)
		}
		v := *good
		v.id, v.p = id, p
		_, err = p.ControllerPublishVolume(soon(t), v.publishRequest())
		if id == "p/unmarked" {
			wantCode(t, "publish "+id, err, "", codes.NotFound, codes.FailedPrecondition)
		} else {
			wantCode(t, "publish "+id, err, "", codes.NotFound)
		}
		_, err = p.ValidateVolumeCapabilities(soon(t), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{v.cap}})
		if id == "p/unmarked" {
			wantCode(t, "validate "+id, err, "", codes.NotFound, codes.FailedPrecondition)
		} else {
			wantCode(t, "validate "+id, err, "", codes.NotFound)
			wantCode(t, "stage "+id, v.tryStage(), "", codes.NotFound, codes.InvalidArgument)
		}
	}
	_, err := newAPI().DeleteVolume(soon(t), &csi.DeleteVolumeRequest{})
	wantCode(t, "an empty id", err, "", codes.InvalidArgument)
	r := creation("c55", "nfs", 64*mib, asFilesystem(""))
	r.Parameters["subDir"] = "../x"
	_, err = newAPI().CreateVolume(soon(t), r)
	wantCode(t, "subDir", err, "subDir", codes.InvalidArgument)

	for key, value := range map[string]string{"share": "/faults/csi/../../root", "server": "127.0.0.1,exec"} {
		v := *good
		v.info = map[string]string{}
		for k, have := range good.info {
			v.info[k] = have
		}
		v.info[key] = value
		wantCode(t, value, v.tryStage(), key, codes.InvalidArgument)
	}
	if after := state(); after != before {
		t.Errorf("changed: before\n%s\nafter\n%s", before, after)
	}
	for _, dataset := range []string{victim, unmarked} {
		wantText(t, filepath.Join(host.Pool.Dir, dataset, "keep.txt"), "kept")
	}
	good.unpublish()
	good.remove()
}

// A zvol whose device is gone for good, as ZFS leaves one when another of its
// name is removed late, gets a new one.
func TestLostDeviceIsMadeAnew(t *testing.T) {
	v := newBlock(t, newAPI(), "lost")
	device := "/dev/zvol/" + v.dataset()
	machine.Sh(t, "udevadm", "settle", "--timeout=60")
	if err := os.Remove(device); err != nil {
		t.Fatal(err)
	}
	v.up()
	if mode := strings.TrimSpace(machine.Sh(t, "zfs", "get", "-H", "-o", "value", "volmode", v.dataset())); mode != "dev" {
		t.Errorf("volmode is %s", mode)
	}
	v.down()
}
