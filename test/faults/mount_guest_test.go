//go:build guest

package faults

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// diskOf is the disk of the one session with a target, as MAJOR:MINOR.
func diskOf(t *testing.T, iqn string) string {
	t.Helper()
	files, err := filepath.Glob("/sys/class/iscsi_session/*/targetname")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err != nil || string(bytes.TrimSpace(b)) != iqn {
			continue
		}
		found, err := filepath.Glob(filepath.Join(filepath.Dir(file), "device/target*/*:1/block/*/dev"))
		if err != nil || len(found) != 1 {
			t.Fatalf("disks of %s: %q, %v", iqn, found, err)
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.TrimSpace(b))
	}
	t.Fatalf("there is no session with %s", iqn)
	return ""
}

// numberOf is the number of the device node at a path.
func numberOf(t *testing.T, path string) string {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Type() != os.ModeDevice {
		t.Fatalf("%s is no block device: %v, %v", path, st, err)
	}
	var raw unix.Stat_t
	if err := unix.Stat(path, &raw); err != nil {
		t.Fatal(err)
	}
	return deviceNumber(raw.Rdev)
}

// A raw volume is the disk itself, never formatted; a capability that says
// neither block nor mount is refused before anything happens.
func TestC01BlockIsNotFormatted(t *testing.T) {
	ran, _ := replaceTool(t, "mkfs.ext4", `: >"$dir/ran"; exec "$real" "$@"`)
	for k, p := range []plugin{oldAPI(), newAPI()} {
		r := creation("c01-"+p.version, "iscsi", 64*mib, asBlock())
		if k == 1 { // what may be used both ways is formatted only where it is used that way
			r.VolumeCapabilities = append(r.VolumeCapabilities, asFilesystem("ext4"))
		}
		v := newVol(t, p, r)
		v.up()
		if at, lun := numberOf(t, v.target()), diskOf(t, v.info["iqn"]); at != lun {
			t.Errorf("the target path is device %s, the LUN is %s", at, lun)
		}
		for _, m := range mounts(t, v.staging()) {
			if m.FSType != "devtmpfs" {
				t.Errorf("at the staging path is %+v", m)
			}
		}
		wantZeros(t, v.target())

		neither := writer(&csi.VolumeCapability{})
		before := machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-r", host.Pool.Parent())
		_, err := p.CreateVolume(soon(t), creation("c01-neither", "iscsi", 64*mib, neither))
		wantCode(t, "CreateVolume", err, "", codes.InvalidArgument)
		if after := machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-r", host.Pool.Parent()); after != before {
			t.Errorf("made: %s", after)
		}
		other := *v
		other.cap, other.dir = neither, v.dir+"-neither"
		_, err = p.ControllerPublishVolume(soon(t), other.publishRequest())
		wantCode(t, "ControllerPublishVolume", err, "", codes.InvalidArgument)
		wantCode(t, "NodeStageVolume", other.tryStage(), "", codes.InvalidArgument)
		wantCode(t, "NodePublishVolume", other.tryNodePublish(), "", codes.InvalidArgument)
		if exists(other.dir) {
			t.Error("a refused call made its path")
		}
		v.down()
	}
	if exists(filepath.Join(ran, "ran")) {
		t.Error("mkfs was started")
	}
}

func wantZeros(t *testing.T, device string) {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 2*mib)
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, make([]byte, len(b))) {
		t.Errorf("the first 2 MiB of %s are not zero: %v", device, err)
	}
}

// However often a volume is published, one line is in the mount table and one
// unpublish takes it away.
func TestC32RepeatedPublishMountsOnce(t *testing.T) {
	for k, v := range []*vol{newBlock(t, newAPI(), "c32-block"), newNFS(t, oldAPI(), "c32-nfs")} {
		v.publish()
		v.stage()
		for range 3 {
			v.nodePublish()
		}
		if at := mounts(t, v.target()); len(at) != 1 {
			t.Errorf("%s: %d lines after three calls: %+v", v.id, len(at), at)
		}
		flipped := v.nodePublishRequest()
		flipped.Readonly = true
		before := mounts(t, v.target())
		_, err := v.p.NodePublishVolume(soon(t), flipped)
		wantCode(t, v.id+", readonly", err, "", codes.AlreadyExists)
		if at := mounts(t, v.target()); len(at) != 1 || at[0].ID != before[0].ID {
			t.Errorf("%s: the flipped call changed %+v to %+v", v.id, before, at)
		}
		write(t, v.data(), "writable")
		v.nodeUnpublish()
		if at := mounts(t, v.target()); len(at) != 0 {
			t.Errorf("%s: %d lines after one unpublish", v.id, len(at))
		}
		if k == 0 { // what is at the target is looked at, not taken for the volume
			if err := os.WriteFile(v.target(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			machine.Sh(t, "mount", "--bind", "/dev/null", v.target())
			if err := v.tryNodePublish(); err == nil {
				t.Error("another device at the target path is taken for the volume")
			}
			machine.Sh(t, "umount", v.target())
			v.nodePublish()
			v.nodeUnpublish()
		}
		v.unstage()
		v.unpublish()
		v.remove()
	}
}

// After a node's reboot publish comes without stage: nothing is bound that is
// not the volume.
func TestC49APlainStagingDirectoryIsNotPublished(t *testing.T) {
	for _, v := range []*vol{newExt4(t, newAPI(), "c49-ext4"), newNFS(t, oldAPI(), "c49-nfs")} {
		v.publish()
		refused := func(when string) {
			t.Helper()
			if len(mounts(t, v.staging())) != 0 {
				t.Fatal("the staging path is mounted, so this is no reboot")
			}
			wantCode(t, v.id+", "+when, v.tryNodePublish(), "", codes.FailedPrecondition)
			if at := mounts(t, v.target()); len(at) != 0 {
				t.Errorf("%s: %s: mounted: %+v", v.id, when, at)
			}
		}
		refused("never staged")
		v.stage()
		v.nodePublish()
		write(t, v.data(), "kept")
		// The node's disk keeps the records; mounts and sessions are gone.
		machine.Sh(t, "umount", v.target())
		machine.Sh(t, "umount", v.staging())
		if iqn := v.info["iqn"]; iqn != "" {
			machine.Sh(t, "iscsiadm", "-m", "node", "-T", iqn, "--logout")
		}
		refused("staged before the reboot")
		if entries, err := os.ReadDir(v.staging()); err != nil || len(entries) > 0 {
			t.Errorf("the directory under the mount holds %v, %v", entries, err)
		}
		v.stage()
		v.nodePublish()
		wantText(t, v.data(), "kept")
		v.down()
	}
}
