package mount

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
)

// fakeDd reads a file with the flags that Probe uses, and fails beyond the
// byte in dd.mode ("fail at N"), as dd does on a medium error.
func fakeDd(w world, args []string) int {
	values := map[string]string{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return complain(1, "dd: unrecognized operand %q", a)
		}
		values[k] = v
	}
	if !strings.Contains(values["iflag"], "skip_bytes,count_bytes,fullblock") || values["status"] != "none" {
		return complain(1, "dd: this fake counts in bytes only")
	}
	skip, err1 := strconv.ParseInt(values["skip"], 10, 64)
	count, err2 := strconv.ParseInt(values["count"], 10, 64)
	if err1 != nil || err2 != nil {
		return complain(1, "dd: invalid number")
	}
	if at, ok := strings.CutPrefix(w.mode("dd"), "fail at "); ok {
		if n, _ := strconv.ParseInt(at, 10, 64); skip+count > n {
			return complain(1, "dd: error reading %q: Input/output error", values["if"])
		}
	}
	f, err := os.Open(values["if"])
	if err != nil {
		return complain(1, "dd: %v", err)
	}
	data := make([]byte, count)
	n, _ := f.ReadAt(data, skip)
	if w.mode("dd") == "short" {
		n /= 2
	}
	os.Stdout.Write(data[:n])
	return 0
}

// fakeBlkid sees an ext4 filesystem where a file holds "ext4", and answers 2
// both when it sees nothing and when it cannot read.
func fakeBlkid(w world, args []string) int {
	if !slices.Contains(args, "-p") || !slices.Contains(args, "export") {
		return complain(4, "blkid: bad usage")
	}
	switch mode := w.mode("blkid"); {
	case mode == "2", mode == "4", mode == "8":
		n, _ := strconv.Atoi(mode)
		return n
	case mode != "":
		os.Stdout.WriteString(mode)
		return 0
	}
	content, err := os.ReadFile(args[len(args)-1])
	if err != nil || !bytes.Contains(content, []byte("ext4")) {
		return 2
	}
	os.Stdout.WriteString("DEVNAME=x\nUUID=1\nBLOCK_SIZE=4096\nTYPE=ext4\nUSAGE=filesystem\n")
	return 0
}

// fakeMkfs writes a signature; like the real ones it overwrites without a
// question, apart from mkfs.xfs without -f.
func fakeMkfs(w world, args []string) int {
	if w.mode("mkfs") != "" {
		return complain(1, "mkfs: %s", w.mode("mkfs"))
	}
	if len(args) < 2 || args[len(args)-2] != "--" {
		return complain(1, "mkfs: the device must not be taken for an option")
	}
	f, err := os.OpenFile(args[len(args)-1], os.O_WRONLY, 0)
	if err != nil {
		return complain(1, "mkfs: %v", err)
	}
	defer f.Close()
	f.WriteAt([]byte("ext4"), 1080)
	return 0
}

func fakeE2fsck(w world, args []string) int {
	if len(args) != 2 || args[0] != "-p" {
		return complain(16, "Usage: e2fsck")
	}
	if w.mode("e2fsck") == "unreadable" {
		return complain(8, "e2fsck: Input/output error while trying to open %s", args[1])
	}
	os.Stdout.WriteString("x: clean\nx: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n")
	n, _ := strconv.Atoi(w.mode("e2fsck"))
	return n
}

func fakeBlockdev(_ world, args []string) int {
	if len(args) != 2 || args[0] != "--getro" {
		return complain(1, "blockdev: bad usage")
	}
	os.Stdout.WriteString("0\n")
	return 0
}

func fakeResize2fs(w world, args []string) int {
	switch w.mode("resize2fs") {
	case "full":
		return complain(0, "The filesystem is already 262144 (4k) blocks long.  Nothing to do!")
	case "fail":
		return complain(1, "resize2fs: Input/output error")
	default:
		w.add("blocks", "more")
	}
	return 0
}
