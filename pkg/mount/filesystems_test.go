package mount

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// volume is a plain file that stands for a device.
func (w world) volume(t *testing.T, sizeBytes int64) string {
	t.Helper()
	path := w.path("volume")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, sizeBytes); err != nil {
		t.Fatal(err)
	}
	return path
}

func put(t *testing.T, path, text string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), offset); err != nil {
		t.Fatal(err)
	}
}

func TestProbe(t *testing.T) {
	const size = 16 * mib
	for name, c := range map[string]struct {
		text   string
		offset int64
		blkid  string
		want   Content
	}{
		"blank":                    {want: Content{Blank: true, What: "nothing"}},
		"filesystem":               {text: "ext4", offset: 1080, want: Content{FSType: "ext4", What: "a filesystem of type ext4"}},
		"last byte of first MiB":   {text: "x", offset: mib - 1, want: Content{What: "unknown data"}},
		"first byte of last MiB":   {text: "x", offset: size - mib, want: Content{What: "unknown data"}},
		"last byte":                {text: "x", offset: size - 1, want: Content{What: "unknown data"}},
		"in the middle":            {text: "x", offset: size / 2, want: Content{What: "unknown data"}},
		"LVM":                      {blkid: "TYPE=LVM2_member\nUSAGE=raid\n", want: Content{What: "a signature of type LVM2_member"}},
		"LUKS":                     {blkid: "TYPE=crypto_LUKS\nUSAGE=crypto\n", want: Content{What: "a signature of type crypto_LUKS"}},
		"partitions":               {blkid: "PTUUID=1\nPTTYPE=dos\n", want: Content{What: "a partition table of type dos"}},
		"something unnamed":        {blkid: "DEVNAME=x\n", want: Content{What: "a signature that blkid does not name"}},
		"contradicting signatures": {blkid: "8", want: Content{What: "several signatures that contradict each other"}},
		"data that blkid sees not": {text: "data", offset: 4096, blkid: "2", want: Content{What: "unknown data"}},
		"a mkfs.xfs that was cut off": {text: "\x01", offset: xfsInProgress, blkid: "TYPE=xfs\nUSAGE=filesystem\n",
			want: Content{What: "an xfs filesystem whose mkfs was cut off"}},
		"filesystem with LVM label": {blkid: "LABEL=TYPE=LVM2_member\nTYPE=xfs\nUSAGE=filesystem\n", want: Content{FSType: "xfs", What: "a filesystem of type xfs"}},
	} {
		w := newWorld(t)
		device := w.volume(t, size)
		if c.text != "" {
			put(t, device, c.text, c.offset)
		}
		w.set("blkid.mode", c.blkid)
		got, err := w.filesystems().Probe(ctx, device)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRegionsCoverBothEnds(t *testing.T) {
	for _, size := range []int64{1, 512, mib - 1, mib, mib + 512, 2 * mib, 2*mib + 512, 3 * mib, 8 * mib, 1 << 40} {
		list := regions(size)
		first, last := list[0], list[len(list)-1]
		if first.offset != 0 || first.length < min(size, mib) {
			t.Errorf("%d: first is %v", size, first)
		}
		if last.offset+last.length != size || last.length < min(size, mib) {
			t.Errorf("%d: last is %v", size, last)
		}
		for _, r := range list {
			if r.offset < 0 || r.offset+r.length > size || r.offset%512 != 0 && size%512 == 0 {
				t.Errorf("%d: %v", size, r)
			}
		}
	}
}

func TestC31UnreadableIsNeverBlank(t *testing.T) {
	const size = 16 * mib
	for name, mode := range map[string]string{
		"nothing":           "fail at 0",
		"first 4 KiB only":  "fail at 4096",
		"first MiB only":    "fail at 1048576",
		"all but the last":  "fail at 16777215",
		"fewer bytes given": "short",
	} {
		w := newWorld(t)
		device := w.volume(t, size)
		w.set("blkid.mode", "2")
		w.set("dd.mode", mode)
		f := w.filesystems()
		if c, err := f.Probe(ctx, device); !errors.Is(err, fault.Unavailable) || c != (Content{}) {
			t.Errorf("%s: Probe = %v, %v", name, c, err)
		}
		for _, fsType := range []string{"ext4", "xfs"} {
			if err := f.Format(ctx, device, fsType, nil, false); !errors.Is(err, fault.Unavailable) {
				t.Errorf("%s: Format = %v", name, err)
			}
		}
		if calls := w.calls("mkfs"); len(calls)+len(w.calls("mkfs.ext4"))+len(w.calls("mkfs.xfs")) > 0 {
			t.Errorf("%s: mkfs was started", name)
		}
		w.set("dd.mode", "")
		if c, err := f.Probe(ctx, device); err != nil || !c.Blank {
			t.Errorf("%s: a blank disk that reads again: %v, %v", name, c, err)
		}
	}
}

func TestProbeOfWhatIsNoDevice(t *testing.T) {
	w := newWorld(t)
	f := w.filesystems()
	for device, kind := range map[string]error{
		"relative":      fault.Invalid,
		"/no/such":      fault.Unavailable,
		t.TempDir():     fault.Precondition,
		w.volume(t, 0):  fault.Unavailable, // a disk that is gone has size 0
		"/dev/null":     fault.Precondition,
		"/dev/nul\x00l": fault.Invalid,
	} {
		if c, err := f.Probe(ctx, device); !errors.Is(err, kind) || c != (Content{}) {
			t.Errorf("Probe(%q) = %v, %v", device, c, err)
		}
	}
	w.set("blkid.mode", "4")
	if _, err := f.Probe(ctx, w.volume(t, mib)); !errors.Is(err, fault.Unavailable) {
		t.Errorf("blkid that fails: %v", err)
	}
	w.without(t, "blkid")
	if _, err := f.Probe(ctx, w.volume(t, mib)); !errors.Is(err, fault.Unavailable) {
		t.Errorf("blkid missing: %v", err)
	}
}

func TestProbeOfAHungDiskEndsAtTheDeadline(t *testing.T) {
	w := newWorld(t)
	device := w.volume(t, mib)
	w.set("dd.mode", "hang")
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := w.filesystems().Probe(short, device); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	w.allGone(t)
}

func TestFormat(t *testing.T) {
	for fsType, want := range map[string]string{
		"ext4": "mkfs.ext4 -q -m 0 -b 4096 -E nodiscard -N 100 -- ",
		"ext3": "mkfs.ext3 -q -m 0 -b 4096 -E nodiscard -N 100 -- ",
		"xfs":  "mkfs.xfs -q -K -N 100 -- ",
	} {
		w := newWorld(t)
		device := w.volume(t, 16*mib)
		f := w.filesystems()
		if err := f.Format(ctx, device, fsType, []string{"-N", "100"}, false); err != nil {
			t.Errorf("%s: %v", fsType, err)
		}
		if got := w.calls("mkfs." + fsType); len(got) != 1 || got[0] != want+device {
			t.Errorf("%s: started %q", fsType, got)
		}
		// mke2fs would overwrite it without a question.
		if err := f.Format(ctx, device, fsType, nil, false); !errors.Is(err, fault.Precondition) {
			t.Errorf("%s: formatted over a filesystem: %v", fsType, err)
		}
		if got := w.calls("mkfs." + fsType); len(got) != 1 {
			t.Errorf("%s: started %q", fsType, got)
		}
		if err := f.Format(ctx, device, fsType, nil, true); err != nil {
			t.Errorf("%s: the repeat of a format that was cut off: %v", fsType, err)
		}
		got := w.calls("mkfs." + fsType)
		if forced := strings.Contains(got[len(got)-1], " -f "); len(got) != 2 || forced != (fsType == "xfs") {
			t.Errorf("%s: started %q", fsType, got)
		}
	}
}

func TestFormatFailures(t *testing.T) {
	w := newWorld(t)
	device := w.volume(t, 16*mib)
	f := w.filesystems()
	for _, fsType := range []string{"btrfs", "", "ext4 -F", "../ext4"} {
		if err := f.Format(ctx, device, fsType, nil, true); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", fsType, err)
		}
	}
	w.set("mkfs.mode", "/dev/x is mounted; will not make a filesystem here!")
	if err := f.Format(ctx, device, "ext4", nil, true); !errors.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	w.without(t, "mkfs.ext4")
	if err := f.Format(ctx, device, "ext4", nil, false); !errors.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for code, kind := range map[string]error{
		"0": nil, "1": nil, "2": nil, "3": nil,
		"4": fault.Precondition, "8": fault.Precondition, "12": fault.Precondition, "16": fault.Precondition, "32": fault.Precondition,
	} {
		w := newWorld(t)
		device := w.volume(t, mib)
		w.set("e2fsck.mode", code)
		err := w.filesystems().Check(ctx, device, "ext3")
		if (kind == nil) != (err == nil) || !errors.Is(err, kind) {
			t.Errorf("status %s: %v", code, err)
		}
		if err != nil && !strings.Contains(err.Error(), "RUN fsck MANUALLY") {
			t.Errorf("status %s does not say what e2fsck found: %v", code, err)
		}
	}
	w := newWorld(t)
	w.set("e2fsck.mode", "unreadable")
	if err := w.filesystems().Check(ctx, w.volume(t, mib), "ext4"); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
	w = newWorld(t)
	if err := w.filesystems().Check(ctx, w.volume(t, mib), "xfs"); err != nil || w.get("calls") != "" {
		t.Errorf("xfs: %v, started %s", err, w.get("calls"))
	}
	w.without(t, "e2fsck")
	if err := w.filesystems().Check(ctx, w.volume(t, mib), "ext4"); !errors.Is(err, fault.Unavailable) {
		t.Errorf("e2fsck missing: %v", err)
	}
}
