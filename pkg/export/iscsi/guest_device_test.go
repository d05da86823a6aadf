//go:build guest

package iscsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// C13: fresh zvols are exported as soon as `zfs create` returns, most of them
// before their link is there, and taken down and destroyed again.
func TestGuestC13FreshZvols(t *testing.T) {
	count := 20
	if testing.Short() {
		count = 4
	}
	h := guestHost(t)
	i := h.instance(t, "fresh")
	late := 0
	for k := range count {
		v := grants(h.volume(t, k), chapA)
		if _, err := os.Stat(v.Source); err != nil {
			late++
		}
		i.ensure(t, v)
		i.remove(t, v)
		destroy(t, v.Source)
	}
	t.Logf("%d of %d links were not there yet", late, count)
}

// C13: the queue of udev is held, so the link does not come.
func TestGuestC13LinkIsHeldBack(t *testing.T) {
	h := guestHost(t)
	i := h.instance(t, "fresh")
	sh(t, "udevadm", "settle", "--timeout=60")
	sh(t, "udevadm", "control", "--stop-exec-queue")
	release := func() { sh(t, "udevadm", "control", "--start-exec-queue") }
	defer release()
	v := grants(h.volume(t, 1), chapA)
	usual := i.deviceWait
	i.deviceWait = 300 * time.Millisecond
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Ensure without a link: %v", err)
	}
	if _, err := os.Lstat(v.Source); err == nil {
		t.Error("something was made at the device's path")
	}
	i.deviceWait = usual
	done := make(chan error, 1)
	go func() { done <- i.Ensure(t.Context(), v) }()
	select {
	case err := <-done:
		t.Fatalf("Ensure did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Errorf("Ensure when the link came: %v", err)
	}
	i.remove(t, v)
}

// C13: udev has made no link, and never would.
func TestGuestC13LinkIsNotMade(t *testing.T) {
	h := guestHost(t)
	i := h.instanceWith(t, "fresh", func(c *Config) { c.Announce = AnnounceZvols })
	const mask = "/run/udev/rules.d/60-zvol.rules"
	reload := func() { sh(t, "udevadm", "control", "--reload") }
	must(t, os.MkdirAll(filepath.Dir(mask), 0o755), os.Symlink("/dev/null", mask))
	unmask := func() {
		if err := os.Remove(mask); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		reload()
	}
	defer unmask()
	reload()
	v := grants(h.volume(t, 1), chapA)
	sh(t, "udevadm", "settle", "--timeout=60")
	if _, err := os.Lstat(v.Source); err == nil {
		t.Fatal("there is a link, without the rule that makes it")
	}
	unmask()
	i.ensure(t, v)
	i.remove(t, v)
}

func TestGuestHostDevice(t *testing.T) {
	h := guestHost(t)
	i := h.instance(t, "fresh")
	path := h.zvol(t)
	d := i.waitDevice(t, path)
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	if d.Major != unix.Major(st.Rdev) || d.Minor != unix.Minor(st.Rdev) || d.SizeBytes != zvolBytes {
		t.Errorf("%+v", d)
	}

	// A link that still names another zvol, as after a rename or a destroy.
	target, err := os.Readlink(path)
	must(t, err)
	stale := zvolDir + guestPool + "/stale"
	must(t, os.Symlink(target, stale))
	defer func() { _ = os.Remove(stale) }()
	if d, err := HostDevice(stale); err == nil || !strings.Contains(err.Error(), zvolName(path)) {
		t.Errorf("a link to another zvol: %+v, %v", d, err)
	}

	// A block device under /dev/zvol that is none.
	foreign := zvolDir + guestPool + "/foreign"
	must(t, os.Symlink("/dev/vda", foreign))
	defer func() { _ = os.Remove(foreign) }()
	if _, err := os.Stat("/dev/vda"); err == nil {
		if d, err := HostDevice(foreign); err == nil {
			t.Errorf("a link to a disk: %+v", d)
		}
	}

	// A blank in a dataset's name.
	blank := guestPool + "/with blank"
	sh(t, "zfs", "create", "-s", "-V", fmt.Sprint(zvolBytes), blank)
	i.waitDevice(t, zvolDir+guestPool+"/with+blank")
}

// waitDevice returns the device of a new zvol.
func (i *instance) waitDevice(t *testing.T, path string) (found Device) {
	t.Helper()
	must(t, i.withDevice(t.Context(), path, zvolBytes, func(d Device) error {
		found = d
		return nil
	}))
	return found
}

// C13: a zvol takes the name of one that was destroyed a moment ago; its link
// comes, goes with the old one's, and comes again.
func TestGuestC13NameUsedAgain(t *testing.T) {
	h := guestHost(t)
	i := h.instance(t, "fresh")
	path := h.zvol(t)
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for k := range rounds {
		v := grants(volumeOn(path, k), chapA)
		i.ensure(t, v)
		i.remove(t, v)
		destroy(t, path)
		sh(t, "zfs", "create", "-s", "-V", fmt.Sprint(zvolBytes), "-o", "volmode=dev", zvolName(path))
	}
}

// C50: after a boot no module is loaded; Ready loads them by itself.
func TestGuestC50ReadyLoadsTheModules(t *testing.T) {
	h := guestHost(t)
	log := logrus.New()
	i := h.instanceWith(t, "fresh", func(c *Config) { c.Runner = run.New(log) })
	t.Cleanup(func() { must(t, i.Ready(context.Background())) })
	must(t, h.fs.Rmdir(fabricDir))
	sh(t, "modprobe", "-r", "iscsi_target_mod")
	// The kernel has loaded other backends beside ours.
	backends, err := os.ReadDir("/sys/module/target_core_mod/holders")
	must(t, err)
	for _, b := range backends {
		sh(t, "modprobe", "-r", b.Name())
	}
	if _, err := os.Stat("/sys/module/target_core_mod"); err == nil {
		sh(t, "modprobe", "-r", "target_core_mod")
	}
	if list, err := i.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("List without modules: %v, %v", list, err)
	}
	v := grants(h.volume(t, 1), chapA)
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Ensure without modules: %v", err)
	}
	i.remove(t, v)
	for range 2 {
		if err := i.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	i.ensure(t, v)
	i.remove(t, v)
}
