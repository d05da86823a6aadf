//go:build guest

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// put writes an attribute of configfs or sysfs.
func put(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

// theOne is the only path that a pattern matches.
func theOne(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s matches %q, %v", pattern, found, err)
	}
	return found[0]
}

func step(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// throughMapping puts a device-mapper device between a published volume's zvol
// and its LUN: the target stays, and its disk does what the mapping says. The
// daemon's own backstore comes back with the returned restore.
func throughMapping(t *testing.T, v *vol) (load func(table string), restore func()) {
	t.Helper()
	tpg := filepath.Join(targets, v.info["iqn"], "tpgt_1")
	aclLink, lunLink := theOne(t, tpg+"/acls/*/lun_1/lun_1"), theOne(t, tpg+"/lun/lun_1/tarn*")
	backstore, err := filepath.EvalSymlinks(lunLink)
	step(t, err)
	aclLUN := filepath.Join(tpg, "lun/lun_1")
	unlink := func() {
		step(t, os.Remove(aclLink))
		step(t, os.Remove(lunLink))
		step(t, os.Remove(backstore))
	}
	unlink()
	zvol := "/dev/zvol/" + v.dataset()
	machine.Sh(t, "dmsetup", "create", v.word, "--table", fmt.Sprintf("0 %d linear %s 0", 64*mib/512, zvol))
	device := "/dev/mapper/" + v.word
	step(t, os.Mkdir(backstore, 0o755))
	put(t, backstore+"/control", "udev_path="+device)
	put(t, backstore+"/udev_path", device)
	put(t, backstore+"/wwn/vpd_unit_serial", v.info["serial"])
	put(t, backstore+"/enable", "1")
	step(t, os.Symlink(backstore, lunLink))
	step(t, os.Symlink(aclLUN, aclLink))
	load = func(table string) {
		t.Helper()
		machine.Sh(t, "dmsetup", "suspend", "--noflush", v.word)
		machine.Sh(t, "dmsetup", "reload", v.word, "--table", strings.ReplaceAll(table, "ZVOL", zvol))
		machine.Sh(t, "dmsetup", "resume", v.word)
	}
	return load, func() {
		t.Helper()
		unlink()
		machine.Sh(t, "dmsetup", "remove", "--retry", v.word)
		v.publish()
	}
}

// A disk that cannot be read is not held to be blank, and nothing is made on it.
func TestC31AnUnreadableDiskIsNotFormatted(t *testing.T) {
	v := newExt4(t, newAPI(), "c31") // a blank new volume is formatted
	v.up()
	write(t, v.data(), "kept")
	v.nodeUnpublish()
	v.unstage()

	ran, _ := replaceTool(t, "mkfs.ext4", `: >"$dir/ran"; exec "$real" "$@"`)
	ranXFS, _ := replaceTool(t, "mkfs.xfs", `: >"$dir/ran"; exec "$real" "$@"`)
	load, restore := throughMapping(t, v)
	const sectors = 64 * mib / 512
	for what, table := range map[string]string{
		"nothing readable": fmt.Sprintf("0 %d error", sectors),
		"first 4 KiB only": fmt.Sprintf("0 8 linear ZVOL 0\n8 %d error", sectors-8),
	} {
		load(table)
		err := v.tryStage()
		wantCode(t, what, err, "", codes.Unavailable, codes.Internal)
		if what == "nothing readable" {
			other := *v
			other.p, other.cap = oldAPI(), asFilesystem("xfs")
			wantCode(t, what+", as xfs", other.tryStage(), "", codes.Unavailable, codes.Internal, codes.InvalidArgument)
		}
		if open := sessions(t); len(open) != 0 {
			t.Errorf("%s: sessions are left: %q", what, open)
		}
	}
	if exists(ran+"/ran") || exists(ranXFS+"/ran") {
		t.Error("mkfs was started")
	}
	load(fmt.Sprintf("0 %d linear ZVOL 0", sectors))
	v.stage()
	v.nodePublish()
	wantText(t, v.data(), "kept")
	v.nodeUnpublish()
	v.unstage()
	restore()
	v.unpublish()
	v.remove()
}

// An outage and a lost state directory: what is mounted tells the protocol, the
// teardown is a real one, and the next stage gives a filesystem that works.
func TestC34AfterAnOutageWithoutRecords(t *testing.T) {
	v := newExt4(t, oldAPI(), "c34")
	v.up()
	write(t, v.data(), "kept")
	host.Daemon.Kill()
	forgetRecords(t, host.Daemon)
	again(t, host.Daemon)

	iqn := v.info["iqn"]
	put(t, theOne(t, "/sys/class/iscsi_session/session*/recovery_tmo"), "1")
	enable := filepath.Join(targets, iqn, "tpgt_1/enable")
	put(t, enable, "0")
	eventually(t, "the filesystem fails", time.Minute, func() bool {
		f, err := os.OpenFile(v.data(), os.O_RDWR, 0)
		if err != nil {
			return true
		}
		defer f.Close()
		if _, err = f.WriteAt([]byte("lost"), 0); err == nil {
			err = f.Sync()
		}
		return err != nil
	})
	put(t, enable, "1")
	v.nodeUnpublish()
	v.unstage()
	if at := mounts(t, v.staging()); len(at) != 0 {
		t.Errorf("still mounted: %+v", at)
	}
	if open := sessions(t); len(open) != 0 {
		t.Errorf("sessions are left: %q", open)
	}
	v.stage()
	v.nodePublish()
	write(t, v.data(), "written again")
	v.down()
}
