package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// slack is how close two clocks of one kernel are, in seconds.
const slack = 1

// serverBeforePool says that the NFS server was started before a pool was
// imported whose volumes it was to serve, or returns "": clients that came in
// between were told that their files do not exist, and that is not undone by
// serving them later. A pool that was made while the server ran is none.
func (c *Checker) serverBeforePool(parent zfs.Dataset) string {
	pool, _, _ := strings.Cut(parent.Name, "/")
	threads := c.host.processes("nfsd")
	imported, known := c.imported(pool)
	boot, err := c.bootTime()
	if len(threads) == 0 || !known || err != nil {
		return ""
	}
	started := threads[0].start
	if imported <= started+slack || float64(parent.Bytes("creation")) >= boot+started {
		return ""
	}
	return fmt.Sprintf("the NFS server was started %.0f s before pool %s was imported", imported-started, pool)
}

// imported returns when a pool was imported, in seconds since the boot: the
// module's statistics of it are made then, and tell their age in their first
// line, in nanoseconds (kstat_seq_show_headers in module/os/linux/spl/spl-kstat.c).
func (c *Checker) imported(pool string) (float64, bool) {
	for _, name := range []string{"iostats", "dmu_tx_assign"} {
		text, err := c.host.read("proc/spl/kstat/zfs/" + pool + "/" + name)
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(text, "\n")
		fields := strings.Fields(line)
		if len(fields) != 7 {
			continue
		}
		if ns, err := strconv.ParseInt(fields[5], 10, 64); err == nil {
			return float64(ns) / 1e9, true
		}
	}
	return 0, false
}

// bootTime is the time of the boot, in seconds of the epoch (proc_stat(5)).
func (c *Checker) bootTime() (float64, error) {
	stat, err := c.host.read("proc/stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(stat) {
		if text, found := strings.CutPrefix(line, "btime "); found {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("/proc/stat has no btime")
}
