//go:build guest

package iscsi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

const size = 64 << 20

func guestContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// attachFor attaches, and detaches at the end of the test.
func (l lio) attachFor(a *Attacher, target attach.Target, c *chap.Credentials) attach.Device {
	l.t.Helper()
	ctx := guestContext(l.t)
	begin := time.Now()
	d, err := a.Attach(ctx, target, c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Logf("attached %s in %s", d.Path, time.Since(begin).Round(time.Millisecond))
	l.t.Cleanup(func() {
		begin := time.Now()
		if err := a.Detach(context.Background(), target); err != nil {
			l.t.Error(err)
		}
		l.t.Logf("detached in %s", time.Since(begin).Round(time.Millisecond))
		l.nothingLeft("detach")
	})
	return d
}

func TestGuestReady(t *testing.T) {
	if err := makePool(); err != nil {
		t.Fatal(err)
	}
	if err := guestAttacher(io.Discard).Ready(guestContext(t)); err != nil {
		t.Error(err)
	}
}

func TestGuestAttachFindDetach(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	target := l.target(portal4)
	if _, ok, err := a.Find(ctx, target); ok || err != nil {
		t.Errorf("Find before: %v, %v", ok, err)
	}
	before, err := os.ReadFile("/etc/iscsi/initiatorname.iscsi")
	if err != nil {
		t.Fatal(err)
	}
	d := l.attachFor(a, target, nil)
	major, minor, ok := deviceNumber(d.Path)
	if !ok || major != d.Major || minor != d.Minor {
		t.Errorf("%s is %d:%d, reported %d:%d", d.Path, major, minor, d.Major, d.Minor)
	}
	found, ok, err := a.Find(ctx, target)
	if err != nil || !ok || found != d {
		t.Errorf("Find: %+v, %v, %v", found, ok, err)
	}
	if again, err := a.Attach(ctx, target, nil); err != nil || again != d {
		t.Errorf("again: %+v, %v", again, err)
	}
	iqn, lun, ok := a.TargetOfDevice(int(d.Major), int(d.Minor))
	if !ok || iqn != l.iqn || lun != 1 {
		t.Errorf("TargetOfDevice: %s, %d, %v", iqn, lun, ok)
	}
	sessions, err := a.sessions(l.iqn)
	if err != nil || len(sessions) != 1 || sessions[0].initiator != guestInitiator {
		t.Errorf("sessions: %+v, %v", sessions, err)
	}
	after, err := os.ReadFile("/etc/iscsi/initiatorname.iscsi")
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the node's own initiator name changed: %s, %v", after, err)
	}
	if out := machine.Sh(t, "iscsiadm", "-m", "session", "-P", "1"); !strings.Contains(out, interfaceName(guestInitiator)) {
		t.Errorf("the session does not use our interface: %s", out)
	}

	shown := func() string { return strings.TrimSpace(machine.Sh(t, "blockdev", "--getsize64", d.Path)) }
	machine.Sh(t, "zfs", "set", fmt.Sprintf("volsize=%d", 2*size), l.zvol)
	if got := shown(); got != fmt.Sprint(size) {
		t.Errorf("before the rescan: %s bytes", got)
	}
	if err := a.Rescan(ctx, target); err != nil {
		t.Error(err)
	}
	if got := shown(); got != fmt.Sprint(2*size) {
		t.Errorf("after the rescan: %s bytes", got)
	}
}

func TestGuestCHAP(t *testing.T) {
	ctx := guestContext(t)
	right := chap.Credentials{User: "worker-1", Password: "sentinel-password", MutualUser: "tarn", MutualPassword: "sentinel-mutual"}
	l := export(t, size, portal4).allow(guestInitiator, &right)
	var log bytes.Buffer
	a := guestAttacher(&log)
	for name, c := range map[string]struct {
		credentials *chap.Credentials
		kind        error
	}{
		"none":          {nil, fault.Precondition},
		"wrong":         {&chap.Credentials{User: "worker-1", Password: "sentinel-wrong"}, fault.Precondition},
		"wrong user":    {&chap.Credentials{User: "other", Password: "sentinel-password"}, fault.Precondition},
		"wrong mutual":  {&chap.Credentials{User: "worker-1", Password: "sentinel-password", MutualUser: "tarn", MutualPassword: "sentinel-wrong"}, fault.Precondition},
		"right":         {&chap.Credentials{User: "worker-1", Password: "sentinel-password"}, nil},
		"right, mutual": {&right, nil},
	} {
		begin := time.Now()
		_, err := a.Attach(ctx, l.target(portal4), c.credentials)
		t.Logf("%s: %s: %v", name, time.Since(begin).Round(time.Millisecond), err)
		if fault.Kind(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(fmt.Sprint(err)+log.String(), "sentinel") {
			t.Errorf("%s: a password leaks: %v, %s", name, err, log.String())
		}
		if err == nil {
			record := "/etc/iscsi/nodes/" + l.iqn + "/127.0.0.1,3260"
			fi, err := os.Stat(record)
			if err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("%s: the record: %v, %v", name, fi, err)
			}
			if err := a.Detach(ctx, l.target(portal4)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		l.nothingLeft(name)
	}
}

func TestGuestWrongInitiatorIsRefused(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator+"0", nil)
	if _, err := guestAttacher(io.Discard).Attach(ctx, l.target(portal4), nil); fault.Kind(err) != fault.Precondition {
		t.Error(err)
	}
	l.nothingLeft("refused")
}

func TestGuestSerialMismatchIsRefused(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	target := l.target(portal4)
	target.Serial = strings.Repeat("f", 32)
	if _, err := guestAttacher(io.Discard).Attach(ctx, target, nil); fault.Kind(err) != fault.Precondition {
		t.Error(err)
	}
	l.nothingLeft("wrong serial")
}

func TestGuestDetachRefusesADiskInUse(t *testing.T) {
	ctx := guestContext(t)
	a := guestAttacher(io.Discard)
	r := run.New(quiet())
	m := mount.New(r)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	d := l.attachFor(a, l.target(portal4), nil)
	if err := mount.NewFilesystems(r).Format(ctx, d.Path, "ext4", nil, false); err != nil {
		t.Fatal(err)
	}
	for _, use := range []string{"mounted", "other namespace", "bound", "held"} {
		t.Run(use, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(t.TempDir(), "volume")
			var undo func()
			switch use {
			case "mounted", "other namespace":
				if err := m.Mount(ctx, d.Path, dir, "ext4", nil, nil); err != nil {
					t.Fatal(err)
				}
				undo = func() { _ = m.Unmount(ctx, dir) }
				if use == "other namespace" {
					holder := exec.Command("unshare", "--mount", "--propagation", "private", "sleep", "600")
					if err := holder.Start(); err != nil {
						t.Fatal(err)
					}
					machine.Eventually(t, "the namespace", func() bool {
						b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", holder.Process.Pid))
						return strings.TrimSpace(string(b)) == "sleep"
					})
					if err := m.Unmount(ctx, dir); err != nil {
						t.Fatal(err)
					}
					undo = func() {
						_ = holder.Process.Kill()
						_ = holder.Wait()
						machine.Eventually(t, "the end of the filesystem", func() bool {
							_, err := os.Stat("/sys/fs/ext4/" + filepath.Base(d.Path))
							return err != nil
						})
					}
				}
			case "bound":
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := m.Bind(ctx, d.Path, file, false); err != nil {
					t.Fatal(err)
				}
				undo = func() { _ = m.Unmount(ctx, file) }
			case "held":
				machine.Sh(t, "dmsetup", "create", "tarnattach-held", "--table", fmt.Sprintf("0 %d linear %s 0", size/512, d.Path))
				undo = func() { machine.Sh(t, "dmsetup", "remove", "--retry", "tarnattach-held") }
			}
			defer undo()
			if err := a.Detach(ctx, l.target(portal4)); fault.Kind(err) != fault.Precondition {
				t.Errorf("%s: %v", use, err)
			}
			if _, ok, err := a.Find(ctx, l.target(portal4)); !ok || err != nil {
				t.Errorf("%s: the disk is gone: %v, %v", use, ok, err)
			}
		})
	}
}

// What was written is on the volume after the detach, though nobody synced it
// and a process still has the device open.
func TestGuestDetachFlushes(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	d, err := a.Attach(ctx, l.target(portal4), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := []byte(strings.Repeat("kept", 1024))
	if _, err := f.WriteAt(text, 1<<20); err != nil {
		t.Fatal(err)
	}
	cache, _ := filepath.Glob("/sys/block/" + filepath.Base(d.Path) + "/device/scsi_disk/*/cache_type")
	t.Logf("cache_type: %s", machine.Sh(t, "cat", cache...))
	if err := a.Detach(ctx, l.target(portal4)); err != nil {
		t.Error(err)
	}
	l.nothingLeft("detach")
	zvol, err := os.Open("/dev/zvol/" + l.zvol)
	if err != nil {
		t.Fatal(err)
	}
	defer zvol.Close()
	b := make([]byte, len(text))
	if _, err := zvol.ReadAt(b, 1<<20); err != nil || !bytes.Equal(b, text) {
		t.Errorf("what was written is not on the volume: %v", err)
	}
}

func TestGuestC25DetachWithoutRecord(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	d, err := a.Attach(ctx, l.target(portal4), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll("/etc/iscsi/nodes/" + l.iqn); err != nil {
		t.Fatal(err)
	}
	iqn, _, ok := guestAttacher(io.Discard).TargetOfDevice(int(d.Major), int(d.Minor))
	if !ok {
		t.Fatal("the target is not found from the device")
	}
	if err := guestAttacher(io.Discard).Detach(ctx, attach.Target{IQN: iqn}); err != nil {
		t.Error(err)
	}
	l.nothingLeft("detach without a record")
}

func TestGuestDetachAfterTheTargetIsGone(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	if _, err := a.Attach(ctx, l.target(portal4), nil); err != nil {
		t.Fatal(err)
	}
	l.down()
	sessions, err := a.sessions(l.iqn)
	if err != nil || len(sessions) != 1 {
		t.Fatalf("sessions: %+v, %v", sessions, err)
	}
	begin := time.Now()
	if err := a.Detach(ctx, l.target(portal4)); err != nil {
		t.Error(err)
	}
	t.Logf("state %s, detached in %s", sessions[0].state, time.Since(begin).Round(time.Millisecond))
	l.nothingLeft("target gone")
}

func TestGuestLostSessionIsReplaced(t *testing.T) {
	ctx := guestContext(t)
	l := export(t, size, portal4, portal6).allow(guestInitiator, nil)
	a := guestAttacher(io.Discard)
	if _, err := a.Attach(ctx, l.target(portal4), nil); err != nil {
		t.Fatal(err)
	}
	// The portal moves: the old one is gone while the session uses it.
	l.forbid(guestInitiator)
	l.remove(l.tpgt() + "/np/" + portal4)
	machine.Eventually(t, "the loss of the session", func() bool {
		s, err := a.sessions(l.iqn)
		return err == nil && len(s) == 1 && s[0].state != loggedIn
	})
	l.allow(guestInitiator, nil)
	begin := time.Now()
	l.attachFor(a, l.target(portal6), nil)
	t.Logf("replaced in %s", time.Since(begin).Round(time.Millisecond))
}

func TestGuestManyAtOnce(t *testing.T) {
	ctx := guestContext(t)
	a := guestAttacher(io.Discard)
	const n = 3
	volumes := make([]lio, n)
	for i := range volumes {
		volumes[i] = export(t, size, portal4).allow(guestInitiator, nil)
	}
	_ = os.Remove("/etc/iscsi/ifaces/" + interfaceName(guestInitiator))
	errs := make(chan error, n)
	for _, l := range volumes {
		go func() {
			_, err := a.Attach(ctx, l.target(portal4), nil)
			if err == nil {
				err = a.Detach(ctx, l.target(portal4))
			}
			errs <- err
		}()
	}
	for range volumes {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, l := range volumes {
		l.nothingLeft("many at once")
	}
}
