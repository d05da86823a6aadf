package check

import (
	"fmt"
	"strings"
	"testing"
)

func TestUdev(t *testing.T) {
	mounts := func(n int) files {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d 28 0:%d / /tank/csi/v%d rw shared:30 - zfs tank/csi/v%d rw,xattr\n", 60+i, 50+i, i, i)
		}
		return files{"proc/self/mountinfo": b.String()}
	}
	const rule = `SUBSYSTEM=="bdi", ACTION=="add", PROGRAM="/usr/libexec/nfsrahead %k", ATTR{read_ahead_kb}="%c"` + "\n"
	many := mounts(manyMounts).with(files{"usr/lib/udev/rules.d/99-nfs.rules": rule})
	judge(t, []row{
		{"no rules", mounts(manyMounts), nil, OK, nil},
		{"many mounts", many, nil, Warn, []string{"/usr/lib/udev/rules.d/99-nfs.rules", "500 mounts", "ln -s /dev/null /etc/udev/rules.d/99-nfs.rules"}},
		{"few mounts", many.with(mounts(manyMounts - 1)), nil, OK, []string{"short: 499"}},
		{"masked", many.with(files{"etc/udev/rules.d/99-nfs.rules": "-> /dev/null"}), nil, OK, []string{"no rule"}},
		{"replaced", many.with(files{"etc/udev/rules.d/99-nfs.rules": rule}), nil, Warn, []string{"/etc/udev"}},
		{"another one masked", many.with(files{"etc/udev/rules.d/60-nfs.rules": ""}), nil, Warn, nil},
		{"in a comment", mounts(manyMounts).with(files{"lib/udev/rules.d/99-nfs.rules": "# " + rule}), nil, OK, nil},
		{"not merged", mounts(manyMounts).with(files{"lib/udev/rules.d/99-nfs.rules": rule}), nil, Warn, nil},
		{"no table", files{"usr/lib/udev/rules.d/99-nfs.rules": rule}, nil, Fail, []string{"mount table"}},
	}, (*Checker).udev)
}
