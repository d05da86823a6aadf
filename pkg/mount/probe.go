package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Content is what a device holds.
type Content struct {
	// FSType is the filesystem, or "" when there is none.
	FSType string
	// Blank: the first and last MiB and the samples between were read and are
	// all zero, and blkid sees nothing.
	Blank bool
	// What describes the content for a message: "an ext4 filesystem", "a dos
	// partition table", "an LVM2_member", "unknown data".
	What string
}

const mib = 1 << 20

// xfsInProgress is sb_inprogress of the first superblock (xfs_format.h, struct
// xfs_dsb): mkfs.xfs sets it first and clears it last, and the kernel mounts
// nothing where it is set.
const xfsInProgress = 126

// Probe reads the device before anything is done to it. The reads go around
// the page cache, so that a disk which no longer answers is not taken for what
// it was, and each is a child, so that a hung disk ends with ctx.
//
// Errors: fault.Unavailable when any part cannot be read. blkid's status 2
// alone proves nothing: it is the same for a blank disk and an unreadable one.
func (f *Filesystems) Probe(ctx context.Context, device string) (Content, error) {
	if err := checkDevice(device); err != nil {
		return Content{}, err
	}
	sizeBytes, block, err := f.size(device)
	if err != nil {
		return Content{}, err
	}
	zero, unfinished := true, false
	for n, r := range regions(sizeBytes) {
		data, err := f.read(ctx, device, r, block)
		if err != nil {
			return Content{}, err
		}
		unfinished = unfinished || n == 0 && len(data) > xfsInProgress && data[xfsInProgress] != 0
		zero = zero && len(bytes.TrimLeft(data, "\x00")) == 0
	}
	c, err := f.blkid(ctx, device)
	if err != nil {
		return Content{}, err
	}
	switch {
	case c.FSType == "xfs" && unfinished:
		c = Content{What: "an xfs filesystem whose mkfs was cut off"}
	case c.What != "":
	case zero:
		c = Content{Blank: true, What: "nothing"}
	default:
		c.What = "unknown data"
	}
	return c, nil
}

// region is a part of a device, in bytes.
type region struct{ offset, length int64 }

// regions are the first MiB, the last, and samples at each quarter between.
func regions(sizeBytes int64) []region {
	if sizeBytes <= 2*mib {
		return []region{{0, sizeBytes}}
	}
	list := []region{{0, mib}}
	for q := int64(1); q < 4; q++ {
		if at := sizeBytes / 4 * q / mib * mib; at > list[len(list)-1].offset && at+mib <= sizeBytes-mib {
			list = append(list, region{at, mib / 16})
		}
	}
	return append(list, region{sizeBytes - mib, mib})
}

// read returns the region, all of it.
func (f *Filesystems) read(ctx context.Context, device string, r region, block bool) ([]byte, error) {
	flags := "skip_bytes,count_bytes,fullblock"
	if block {
		flags += ",direct"
	}
	data, err := f.run.Run(ctx, run.Cmd{Tool: "dd", Args: []string{
		"if=" + device, "bs=1M", "status=none", "iflag=" + flags,
		"skip=" + strconv.FormatInt(r.offset, 10), "count=" + strconv.FormatInt(r.length, 10),
	}})
	switch {
	case contextError(err):
		return nil, err
	case err != nil:
		return nil, fault.New(fault.Unavailable, "%s cannot be read at byte %d, so nothing is known of what it holds: %w", device, r.offset, err)
	case int64(len(data)) != r.length:
		return nil, fault.New(fault.Unavailable, "%s gave %d of %d bytes at byte %d, so nothing is known of what it holds",
			device, len(data), r.length, r.offset)
	}
	return data, nil
}

// SizeBytes is the device's size as the kernel knows it now. The device is not
// opened, so a dead one does not hold it up.
//
// Errors: fault.Unavailable when the device is gone.
func (f *Filesystems) SizeBytes(device string) (int64, error) {
	if err := checkDevice(device); err != nil {
		return 0, err
	}
	sizeBytes, _, err := f.size(device)
	return sizeBytes, err
}

// size returns the size in bytes without opening the device, and whether it is
// a block device. Plain files are served too.
func (f *Filesystems) size(device string) (sizeBytes int64, block bool, err error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return 0, false, fault.New(fault.Unavailable, "%w", &os.PathError{Op: "stat", Path: device, Err: err})
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		sizeBytes = st.Size
	case unix.S_IFBLK:
		block = true
		// In units of 512 bytes whatever the sector size: kernel, block/genhd.c.
		name := filepath.Join(f.sys, "dev/block", fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), "size")
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, false, fault.New(fault.Unavailable, "the size of %s is not known: %w", device, err)
		}
		sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, false, fault.New(fault.Unavailable, "the size of %s is not known: %s: %w", device, name, err)
		}
		sizeBytes = sectors * 512
	default:
		return 0, false, fault.New(fault.Precondition, "%s is no block device", device)
	}
	if sizeBytes == 0 {
		return 0, false, fault.New(fault.Unavailable, "%s has no size: the disk is gone or not ready", device)
	}
	return sizeBytes, block, nil
}

// blkid exit codes, blkid(8): 0 found, 2 nothing found or not readable, 8
// several signatures that contradict each other.
func (f *Filesystems) blkid(ctx context.Context, device string) (Content, error) {
	out, err := f.run.Run(ctx, run.Cmd{Tool: "blkid", Args: []string{"-p", "-o", "export", device}})
	switch {
	case err == nil:
	case contextError(err):
		return Content{}, err
	case run.ExitCode(err) == 2:
		return Content{}, nil
	case run.ExitCode(err) == 8:
		return Content{What: "several signatures that contradict each other"}, nil
	case errors.Is(err, exec.ErrNotFound):
		return Content{}, fault.New(fault.Unavailable, "%s cannot be probed: %w", device, err)
	default:
		return Content{}, fault.New(fault.Unavailable, "%s cannot be probed: %w", device, err)
	}
	return describe(string(out)), nil
}

// describe reads blkid's KEY=value lines.
func describe(export string) Content {
	values := map[string]string{}
	for line := range strings.Lines(export) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			values[k] = v
		}
	}
	kind, usage, table := values["TYPE"], values["USAGE"], values["PTTYPE"]
	switch {
	case kind != "" && usage == "filesystem":
		return Content{FSType: kind, What: "a filesystem of type " + kind}
	case kind != "":
		return Content{What: "a signature of type " + kind}
	case table != "":
		return Content{What: "a partition table of type " + table}
	default:
		return Content{What: "a signature that blkid does not name"}
	}
}
