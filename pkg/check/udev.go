package check

import (
	"path"
	"strings"
)

// ruleDirs are where udev looks for rules; of files with one name the first
// counts (udev(7)).
var ruleDirs = []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"}

// readahead is the program of nfs-utils that udev runs for each filesystem that
// is mounted and each disk that comes. Until it has found an NFS mount with that
// device, it reads the whole table of mounts, up to ten times.
const readahead = "nfsrahead"

// manyMounts is where that begins to hold up the others: some tenths of a second
// of a processor for each, 2 s with 2,000 mounts.
const manyMounts = 500

// udev looks whether the devices of volumes come late because udev is kept busy.
func (c *Checker) udev() Finding {
	rule := c.ruleWith(readahead)
	if rule == "" {
		return ok("udev", "no rule reads the table of mounts")
	}
	mounts, err := c.host.mounts()
	if err != nil {
		return fail("udev", "see /proc/self/mountinfo", "%v", err)
	}
	if len(mounts) < manyMounts {
		return ok("udev", "/%s reads the table of mounts for each device, and it is short: %d", rule, len(mounts))
	}
	return warn("udev", "ln -s /dev/null /etc/udev/rules.d/"+path.Base(rule)+", then udevadm control --reload",
		"/%s reads the table of %d mounts up to ten times for each filesystem that is mounted and each disk, and the devices of volumes come late",
		rule, len(mounts))
}

// ruleWith returns the file of udev's rules that names a program, "" when none
// does.
func (c *Checker) ruleWith(program string) string {
	seen := map[string]bool{}
	for _, dir := range ruleDirs {
		for _, file := range c.host.glob(dir + "/*.rules") {
			if seen[path.Base(file)] {
				continue
			}
			seen[path.Base(file)] = true
			text, err := c.host.read(file)
			if err != nil {
				continue // udev does not read it either
			}
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.Contains(line, program) {
					return file
				}
			}
		}
	}
	return ""
}
