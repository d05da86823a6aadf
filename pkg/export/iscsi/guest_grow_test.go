//go:build guest

package iscsi

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// A zvol that grows under a live session: LIO shows the new size as soon as the
// initiator asks again, without a change in configfs and without a new login,
// and what is written past the old end is in the zvol. The next Ensure finds the
// device as large as it is to be, and touches nothing.
func TestGuestGrownZvolIsSeenAfterARescan(t *testing.T) {
	_, i, v := exportedOn(t, guestHost(t), chapA)
	l := newLogin(t, i.names(v.UUID).iqn, portal4, "a", &credentials)
	d := l.mustStart(t)
	session, err := l.session()
	must(t, err)
	bytes := func() int64 {
		sectors, err := strconv.ParseInt(d.sys(t, "size"), 10, 64)
		must(t, err)
		return sectors * 512
	}
	if got := bytes(); got != zvolBytes {
		t.Fatalf("the disk has %d bytes, not %d", got, zvolBytes)
	}
	sh(t, "zfs", "set", fmt.Sprintf("volsize=%d", 2*zvolBytes), zvolName(v.Source))
	if got := bytes(); got != zvolBytes {
		t.Logf("without a rescan the disk has %d bytes already", got)
	}
	must(t, os.WriteFile("/sys/block/"+d.name+"/device/rescan", []byte("1"), 0o200))
	if got := bytes(); got != 2*zvolBytes {
		t.Fatalf("after a rescan the disk has %d bytes, not %d", got, 2*zvolBytes)
	}
	sh(t, "dd", "if=/dev/urandom", "of="+d.dev(), "bs=4096", "count=1", "seek="+fmt.Sprint(2*zvolBytes/4096-1), "oflag=direct", "conv=fsync", "status=none")
	tail := []string{"bs=4096", "count=1", "skip=" + fmt.Sprint(2*zvolBytes/4096-1), "iflag=direct", "status=none"}
	if a, b := sh(t, append([]string{"dd", "if=" + d.dev()}, tail...)...), sh(t, append([]string{"dd", "if=" + v.Source}, tail...)...); a != b || a == "" {
		t.Error("the last block of disk and zvol differ")
	}
	v.SizeBytes = 2 * zvolBytes
	if changes := i.changes(t, func() { i.ensure(t, v) }); len(changes) > 0 {
		t.Errorf("a new size changed %v", changes)
	}
	if after, err := l.session(); err != nil || after != session || l.state() != "LOGGED_IN" {
		t.Errorf("the session is %s (%s), it was %s: %v", after, l.state(), session, err)
	}
}
