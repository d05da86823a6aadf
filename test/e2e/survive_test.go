//go:build guest

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/test/harness"
)

// eventually polls until ok, and fails at the deadline.
func eventually(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for pause := 20 * time.Millisecond; !ok(); pause = min(2*pause, time.Second) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			t.Fatalf("not in time: %s", what)
		}
	}
}

// configfsTree is everything that configfs shows of iSCSI targets and backstores.
func configfsTree(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, base := range []string{"/sys/kernel/config/target/iscsi", "/sys/kernel/config/target/core"} {
		err := filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			switch filepath.Base(path) {
			case "vpd_unit_serial", "userid", "password", "userid_mutual", "password_mutual", "udev_path", "enable", "authentication", "write_protect":
				b, err := os.ReadFile(path)
				if err == nil {
					seen[path] = string(b)
				}
			}
			if d.IsDir() && (strings.Contains(path, "/acls/") || strings.Contains(path, "/np/") || strings.Contains(path, "/lun/")) {
				seen[path] = "directory"
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return seen
}

// A restart of the daemon while volumes are in use changes nothing that their
// users see, and what was lost meanwhile comes back the same.
func TestDaemonRestartWithVolumesInUse(t *testing.T) {
	nfs, block := create(t, kinds[0], "restart-nfs"), create(t, kinds[3], "restart-block")
	nfs.up()
	block.up()
	f, err := os.Create(nfs.data())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("before"); err != nil {
		t.Fatal(err)
	}
	before := configfsTree(t)
	if len(before) == 0 {
		t.Fatal("no target is there")
	}
	host.Daemon.Kill()
	// While it is down, the exports are lost as by a restart of the NFS server.
	if out, err := exec.Command("exportfs", "-ua").CombinedOutput(); err != nil {
		t.Fatalf("exportfs: %v: %s", err, out)
	}
	defer func(args []string) { host.Daemon.Args = args }(host.Daemon.Args)
	host.Daemon.Args = append(slices.Clone(host.Daemon.Args), "--http-address", pagesAt)
	if err := host.Daemon.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if after := configfsTree(t); len(after) != len(before) {
		t.Errorf("configfs shows %d entries and had %d", len(after), len(before))
	} else {
		for path, value := range before {
			if after[path] != value {
				t.Errorf("%s changed", path)
			}
		}
	}
	// The open file goes on.
	if _, err := f.WriteString(" and after"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(nfs.data()); err != nil || string(b) != "before and after" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	seenFromOutside(t, nfs, block)
	nfs.down()
	block.down()
}

// mkfs is killed half-way: the same node makes the filesystem again, another
// node never does.
func TestKilledMkfs(t *testing.T) {
	k := kinds[1]
	l := create(t, k, "mkfs")
	l.publish()
	pids := stopMkfs(t)
	ctx, cancel := context.WithTimeout(t.Context(), rpcTimeout)
	defer cancel()
	staged := make(chan error, 1)
	go func() {
		_, err := node().NodeStageVolume(ctx, l.stageRequest())
		staged <- err
	}()
	var running []int
	eventually(t, "mkfs runs", time.Minute, func() bool { running = pids(); return len(running) == 2 })
	host.Daemon.Kill()
	for _, pid := range running {
		// A stopped group that loses its parent is hung up by the kernel itself.
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
	if err := <-staged; err == nil {
		t.Fatal("the stage went through")
	}
	if err := os.Remove(filepath.Join(host.Tools, "mkfs.ext4")); err != nil {
		t.Fatal(err)
	}
	if err := host.Daemon.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	l.stage()
	l.nodePublish()
	if err := os.WriteFile(l.data(), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.nodeUnpublish()
	l.unstage()
	// Formatted once and for all: a stage again keeps the data.
	l.stage()
	l.nodePublish()
	if b, err := os.ReadFile(l.data()); err != nil || string(b) != "kept" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	l.down()
}

// stopMkfs gives the daemon a mkfs.ext4 that stops soon after its start, and
// returns what tells the processes that are then there: the one that
// the daemon started, and mkfs itself.
func stopMkfs(t *testing.T) func() []int {
	t.Helper()
	real, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/bash\n%s \"$@\" &\nkill -STOP $!\necho $$ $! >%[2]s/new\nmv %[2]s/new %[2]s/pids\nwait\n", real, dir)
	if err := os.WriteFile(filepath.Join(host.Tools, "mkfs.ext4"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return func() (pids []int) {
		raw, err := os.ReadFile(filepath.Join(dir, "pids"))
		if err != nil {
			return nil
		}
		for word := range strings.FieldsSeq(string(raw)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return pids
	}
}

// With multipathd running and taking every disk, volumes work through its map
// and nothing of it is left.
func TestMultipath(t *testing.T) {
	conf := "defaults {\n find_multipaths no\n user_friendly_names yes\n}\nblacklist {\n devnode \"^(vd|sr|zd|loop|dm-)\"\n}\n"
	if err := os.WriteFile("/etc/multipath.conf", []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	services(t, "start", "multipath")
	defer services(t, "stop", "multipath")
	for _, k := range []kind{kinds[1], kinds[3]} {
		l := create(t, k, "mpath-"+k.word())
		l.up()
		want := []byte("through the map")
		flags := os.O_RDWR | os.O_CREATE
		if k.block {
			flags = os.O_RDWR
		}
		f, err := os.OpenFile(l.data(), flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(want, 0); err != nil {
			t.Error(err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %q, %v", got, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Error(err)
		}
		if uuid := mapperUUID(t, l); !strings.HasPrefix(uuid, "mpath-") {
			t.Errorf("the volume is not used through a map of multipathd, so this test shows nothing: device-mapper uuid %q", uuid)
		}
		l.down()
		eventually(t, "the map is gone", 30*time.Second, func() bool {
			maps, err := filepath.Glob("/dev/mapper/mpath*")
			return err == nil && len(maps) == 0
		})
	}
}

// mapperUUID is the device-mapper uuid of the device that a volume is used
// through; "" when it is no map.
func mapperUUID(t *testing.T, l *live) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(l.target(), &st); err != nil {
		t.Fatal(err)
	}
	device := st.Dev
	if l.kind.block {
		device = st.Rdev
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/dm/uuid", unix.Major(device), unix.Minor(device)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func services(t *testing.T, verb, name string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(root, "hack/vm/services"), verb, name).CombinedOutput(); err != nil {
		t.Fatalf("services %s %s: %v: %s", verb, name, err, out)
	}
}

// A raw volume that its node made an LVM physical volume shows its volume
// group to the storage host too; the volume is deleted all the same.
func TestVolumeWithLVMIsDeleted(t *testing.T) {
	l := create(t, kinds[3], "lvm")
	l.publish()
	device := "/dev/zvol/" + host.Pool.Parent() + "/" + strings.TrimPrefix(l.id, "p/")
	l.unpublish()
	for _, argv := range [][]string{
		{"pvcreate", "-ff", "-y", "--config", lvmConfig, device},
		{"vgcreate", "--config", lvmConfig, "guestvg", device},
		{"lvcreate", "-y", "--config", lvmConfig, "-L", "16M", "-n", "lv", "guestvg"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	if _, err := os.Stat("/dev/mapper/guestvg-lv"); err != nil {
		t.Fatalf("the logical volume is not active, so nothing holds the zvol: %v", err)
	}
	l.remove()
	if _, err := os.Stat("/dev/mapper/guestvg-lv"); err == nil {
		t.Error("the mapping is left")
	}
}

// lvmConfig makes LVM look at zvols, as a host without a filter does.
const lvmConfig = `devices { use_devicesfile=0 types=["zvol",16] scan_lvs=0 }`
