//go:build guest

package mount

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount/minsize"
	"github.com/tarn-csi/tarn/test/machine"
)

var fsTypes = []string{"ext4", "ext3", "xfs"}

func TestGuestLifeOfAFilesystem(t *testing.T) {
	for _, fsType := range fsTypes {
		if fsType == "ext3" && testing.Short() {
			continue // the tools of ext4
		}
		t.Run(fsType, func(t *testing.T) {
			ctx := guestContext(t)
			m, f := guestTools(t)
			// Under device-mapper: ZFS announces a new volsize as a change of
			// medium, and the kernel then drops the dirty inodes of a filesystem
			// that is mounted from the zvol itself.
			sizeBytes, _ := minsize.MinBytes(fsType)
			_, below := zvol(t, 4*sizeBytes)
			whole := newDM(t, fmt.Sprintf("0 %d linear %s 0", sizeBytes/512, below))
			device := whole.device

			if c, err := f.Probe(ctx, device); err != nil || !c.Blank {
				t.Fatalf("a new zvol: %+v, %v", c, err)
			}
			if err := f.Format(ctx, device, fsType, nil, false); err != nil {
				t.Fatal(err)
			}
			c, err := f.Probe(ctx, device)
			if err != nil || c.FSType != fsType || c.Blank {
				t.Fatalf("after mkfs: %+v, %v", c, err)
			}
			if err := f.Format(ctx, device, fsType, nil, false); !errors.Is(err, fault.Precondition) {
				t.Errorf("formatted over a filesystem: %v", err)
			}
			if err := f.Format(ctx, device, fsType, nil, true); err != nil {
				t.Errorf("the repeat of a format that was cut off: %v", err)
			}
			if err := f.Check(ctx, device, fsType); err != nil {
				t.Error(err)
			}
			dir := mountpoint(t, m)
			if err := m.Mount(ctx, device, dir, fsType, nil, nil); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/keep.txt", "kept")
			// mkfs refuses what is mounted, whatever it was told.
			if err := f.Format(ctx, device, fsType, nil, true); err == nil {
				t.Error("formatted a mounted device")
			}
			if grew, err := f.Grow(ctx, device, dir); err != nil || grew {
				t.Errorf("grew without a reason: %v, %v", grew, err)
			}
			before, err := dataBlocks(dir)
			if err != nil {
				t.Fatal(err)
			}
			whole.load(fmt.Sprintf("0 %d linear %s 0", 4*sizeBytes/512, below))
			if grew, err := f.Grow(ctx, device, dir); err != nil || !grew {
				t.Errorf("did not grow: %v, %v", grew, err)
			}
			after, err := dataBlocks(dir)
			if err != nil || after < 3*before {
				t.Errorf("%d blocks became %d, %v", before, after, err)
			}
			if got := read(t, dir+"/keep.txt"); got != "kept" {
				t.Errorf("keep.txt holds %q", got)
			}
			if err := m.Unmount(ctx, dir); err != nil {
				t.Fatal(err)
			}
			if err := f.Check(ctx, device, fsType); err != nil {
				t.Error(err)
			}
		})
	}
}

// The table of pkg/mount/minsize is what mkfs really needs.
func TestGuestMinimumSizes(t *testing.T) {
	for _, fsType := range fsTypes {
		ctx := guestContext(t)
		m, f := guestTools(t)
		least, _ := minsize.MinBytes(fsType)
		_, device := zvol(t, least-16<<10)
		err := f.Format(ctx, device, fsType, nil, false)
		if fsType == "xfs" {
			if err == nil {
				t.Errorf("mkfs.xfs takes less than %d bytes", least)
			}
			continue
		}
		// ext fits, but without a journal: ext3 is then none, and ext4 is not
		// safe against a crash.
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(machine.Sh(t, "dumpe2fs", "-h", device), "has_journal") {
			t.Errorf("%s has a journal below %d bytes", fsType, least)
		}
		_, device = zvol(t, least)
		if err := f.Format(ctx, device, fsType, nil, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(machine.Sh(t, "dumpe2fs", "-h", device), "has_journal") {
			t.Errorf("%s has no journal at %d bytes", fsType, least)
		}
		dir := mountpoint(t, m)
		if err := m.Mount(ctx, device, dir, fsType, nil, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestGuestProbeSeesWhatIsNoFilesystem(t *testing.T) {
	ctx := guestContext(t)
	_, f := guestTools(t)
	_, device := zvol(t, 64*mib)
	for what, prepare := range map[string]func(device string){
		"LVM2_member": func(d string) {
			machine.Sh(t, "pvcreate", "--yes", "--devices", realPath(t, d), realPath(t, d))
		},
		"partition table": func(d string) {
			// One Linux partition from sector 2048 on, and the signature.
			put(t, d, "\x00\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\x00\x10\x00\x00", 446)
			put(t, d, "\x55\xaa", 510)
		},
		"unknown data": func(d string) { put(t, d, "something", 512) },
		"swap":         func(d string) { machine.Sh(t, "mkswap", d) },
	} {
		prepare(device)
		c, err := f.Probe(ctx, device)
		if err != nil || c.Blank || c.FSType != "" || !strings.Contains(c.What, what) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
		if err := f.Format(ctx, device, "ext4", nil, false); !errors.Is(err, fault.Precondition) {
			t.Errorf("%s is formatted: %v", what, err)
		}
		machine.Sh(t, "blkdiscard", "--force", device)
	}
}

// dm puts a device-mapper table over a device, and replaces it.
type dm struct {
	t      *testing.T
	name   string
	device string
}

func newDM(t *testing.T, table string) dm {
	t.Helper()
	d := dm{t: t, name: "tarnmount-test"}
	d.device = "/dev/mapper/" + d.name
	_ = exec.Command("dmsetup", "remove", "--force", d.name).Run()
	machine.Sh(t, "dmsetup", "create", d.name, "--table", table)
	t.Cleanup(func() { machine.Sh(t, "dmsetup", "remove", "--retry", d.name) })
	machine.Eventually(t, d.device, func() bool { _, _, ok := deviceNumber(d.device); return ok })
	return d
}

func (d dm) load(table string) {
	d.t.Helper()
	machine.Sh(d.t, "dmsetup", "suspend", "--noflush", "--nolockfs", d.name)
	machine.Sh(d.t, "dmsetup", "load", d.name, "--table", table)
	machine.Sh(d.t, "dmsetup", "resume", d.name)
}

func TestGuestC31UnreadableDisk(t *testing.T) {
	ctx := guestContext(t)
	m, f := guestTools(t)
	const sectors = 64 * mib / 512
	_, device := zvol(t, sectors*512)
	whole := fmt.Sprintf("0 %d linear %s 0", sectors, device)
	d := newDM(t, whole)
	if err := f.Format(ctx, d.device, "ext4", nil, false); err != nil {
		t.Fatal(err)
	}
	dir := mountpoint(t, m)
	if err := m.Mount(ctx, d.device, dir, "ext4", nil, nil); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/keep.txt", "kept")
	if err := m.Unmount(ctx, dir); err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]string{
		"nothing readable":  fmt.Sprintf("0 %d error", sectors),
		"first 4 KiB only":  fmt.Sprintf("0 8 linear DEV 0\n8 %d error", sectors-8),
		"all but the last":  fmt.Sprintf("0 %d linear DEV 0\n%d 8 error", sectors-8, sectors-8),
		"hole in the first": fmt.Sprintf("0 1024 linear DEV 0\n1024 8 error\n1032 %d linear DEV 1032", sectors-1032),
	} {
		d.load(strings.ReplaceAll(table, "DEV", device))
		if c, err := f.Probe(ctx, d.device); !errors.Is(err, fault.Unavailable) {
			t.Errorf("%s: Probe: %+v, %v", name, c, err)
		}
		for _, fsType := range []string{"ext4", "xfs"} {
			if err := f.Format(ctx, d.device, fsType, nil, false); !errors.Is(err, fault.Unavailable) {
				t.Errorf("%s: Format as %s: %v", name, fsType, err)
			}
		}
	}
	d.load(fmt.Sprintf("0 %d error", sectors))
	if err := f.Check(ctx, d.device, "ext4"); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Check of a disk that cannot be read: %v", err)
	}
	d.load(whole)
	if c, err := f.Probe(ctx, d.device); err != nil || c.FSType != "ext4" {
		t.Errorf("readable again: %+v, %v", c, err)
	}
	if err := m.Mount(ctx, d.device, dir, "ext4", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir+"/keep.txt"); got != "kept" {
		t.Errorf("keep.txt holds %q", got)
	}
	if err := m.Unmount(ctx, dir); err != nil {
		t.Fatal(err)
	}
}

func TestGuestCheck(t *testing.T) {
	ctx := guestContext(t)
	m, f := guestTools(t)
	t.Run("journal to replay", func(t *testing.T) {
		_, device := zvol(t, 16*mib)
		if err := f.Format(ctx, device, "ext4", nil, false); err != nil {
			t.Fatal(err)
		}
		dir := mountpoint(t, m)
		if err := m.Mount(ctx, device, dir, "ext4", nil, nil); err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/keep.txt", "kept")
		machine.Sh(t, "sync", "-f", dir)
		copied := t.TempDir() + "/crashed"
		machine.Sh(t, "dd", "if="+device, "of="+copied, "bs=1M", "status=none")
		if err := m.Unmount(ctx, dir); err != nil {
			t.Fatal(err)
		}
		machine.Sh(t, "dd", "if="+copied, "of="+device, "bs=1M", "status=none", "conv=fsync")
		if !strings.Contains(machine.Sh(t, "dumpe2fs", "-h", device), "needs_recovery") {
			t.Fatal("the copy of a mounted filesystem has no journal to replay")
		}
		if err := f.Check(ctx, device, "ext4"); err != nil {
			t.Error(err)
		}
		if strings.Contains(machine.Sh(t, "dumpe2fs", "-h", device), "needs_recovery") {
			t.Error("the journal was not replayed")
		}
	})
	t.Run("damage for a person", func(t *testing.T) {
		_, device := zvol(t, 64*mib)
		if err := f.Format(ctx, device, "ext4", nil, false); err != nil {
			t.Fatal(err)
		}
		machine.Sh(t, "debugfs", "-w", "-R", "clri <2>", device) // the root directory
		machine.Sh(t, "tune2fs", "-E", "force_fsck", device)
		if err := f.Check(ctx, device, "ext4"); !errors.Is(err, fault.Precondition) || !strings.Contains(err.Error(), "by hand") {
			t.Error(err)
		}
	})
	t.Run("mounted", func(t *testing.T) {
		_, device := zvol(t, 64*mib)
		if err := f.Format(ctx, device, "ext4", nil, false); err != nil {
			t.Fatal(err)
		}
		dir := mountpoint(t, m)
		if err := m.Mount(ctx, device, dir, "ext4", nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.Check(ctx, device, "ext4"); err == nil {
			t.Error("checked a mounted filesystem")
		}
	})
}

// A process that waits for a disk cannot be killed; the call lasts as long as
// the process, and then says that the deadline had passed.
func TestGuestHungDiskEndsWithTheDeadlineError(t *testing.T) {
	ctx := guestContext(t)
	_, f := guestTools(t)
	_, device := zvol(t, 64*mib)
	d := newDM(t, fmt.Sprintf("0 %d linear %s 0", 64*mib/512, device))
	machine.Sh(t, "dmsetup", "suspend", "--noflush", "--nolockfs", d.name)
	timer := time.AfterFunc(3*time.Second, func() { _ = exec.Command("dmsetup", "resume", d.name).Run() })
	defer timer.Stop()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	begin := time.Now()
	_, err := f.Probe(short, d.device)
	took := time.Since(begin)
	if err == nil || !contextError(err) {
		t.Errorf("Probe: %v", err)
	}
	t.Logf("the deadline was 1 s, the disk came back at 3 s, Probe returned after %s", took)
	if took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

func realPath(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(machine.Sh(t, "readlink", "-f", path))
}
