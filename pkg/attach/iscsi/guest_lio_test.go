//go:build guest

package iscsi

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

// These tests need a real zvol behind the kernel's own target, and the real
// open-iscsi.

const (
	configfs = "/sys/kernel/config/target"
	hba      = configfs + "/core/iblock_0"
)

var pool = machine.Pool{Name: "tarnattach", Bytes: 8 << 30, Options: []string{"-O", "volmode=dev"}}

var makePool = sync.OnceValue(func() error {
	afterAll = pool.Down
	return pool.Up()
})

// lio is one volume of the storage host: a zvol behind a target with LUN 1.
type lio struct {
	t      *testing.T
	zvol   string
	iqn    string
	serial string
}

var volumes int

const portal4, portal6 = "127.0.0.1:3260", "[::1]:3260"

// export makes a zvol and its target, with no initiator let in.
func export(t *testing.T, sizeBytes int64, portals ...string) lio {
	t.Helper()
	if err := makePool(); err != nil {
		t.Fatal(err)
	}
	volumes++
	uuid := fmt.Sprintf("%08x%08x%08x%08x", volumes, volumes, 0xabcdef, time.Now().Unix())
	return exportAs(t, uuid, sizeBytes, portals...)
}

func exportAs(t *testing.T, uuid string, sizeBytes int64, portals ...string) lio {
	t.Helper()
	if err := makePool(); err != nil {
		t.Fatal(err)
	}
	l := lio{t: t, zvol: pool.Name + "/" + uuid, iqn: "iqn.2026-01.io.github.tarn-csi:test:" + uuid, serial: uuid}
	machine.Sh(t, "zfs", "create", "-s", "-o", "volblocksize=16k", "-V", fmt.Sprint(sizeBytes), l.zvol)
	pool.DestroyAtEnd(t, l.zvol)
	device := machine.Device(t, l.zvol)

	l.mkdir(l.backstore())
	t.Cleanup(func() { l.down() })
	l.write(l.backstore()+"/control", "udev_path="+device)
	l.write(l.backstore()+"/udev_path", device)
	l.write(l.backstore()+"/wwn/vpd_unit_serial", l.serial)
	l.write(l.backstore()+"/enable", "1")
	l.write(l.backstore()+"/attrib/emulate_tpu", "1")
	l.mkdir(l.tpgt())
	l.write(l.tpgt()+"/attrib/generate_node_acls", "0")
	l.write(l.tpgt()+"/attrib/demo_mode_discovery", "0")
	l.write(l.tpgt()+"/attrib/authentication", "0")
	l.mkdir(l.tpgt() + "/lun/lun_1")
	l.link(l.backstore(), l.tpgt()+"/lun/lun_1/backstore")
	for _, p := range portals {
		l.mkdir(l.tpgt() + "/np/" + p)
	}
	l.write(l.tpgt()+"/enable", "1")
	return l
}

func (l lio) backstore() string { return filepath.Join(hba, filepath.Base(l.zvol)) }
func (l lio) tpgt() string      { return configfs + "/iscsi/" + l.iqn + "/tpgt_1" }

func (l lio) mkdir(path string) {
	l.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		l.t.Fatal(err)
	}
}

func (l lio) link(to, path string) {
	l.t.Helper()
	if err := os.Symlink(to, path); err != nil {
		l.t.Fatal(err)
	}
}

func (l lio) write(path, text string) {
	l.t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// allow lets one initiator in.
func (l lio) allow(initiator string, c *chap.Credentials) lio {
	l.t.Helper()
	acl := l.tpgt() + "/acls/" + initiator
	l.mkdir(acl)
	if c != nil {
		l.write(l.tpgt()+"/attrib/authentication", "1")
		l.write(acl+"/auth/userid", c.User)
		l.write(acl+"/auth/password", c.Password)
		if c.MutualUser != "" {
			l.write(acl+"/auth/userid_mutual", c.MutualUser)
			l.write(acl+"/auth/password_mutual", c.MutualPassword)
		}
	}
	l.mkdir(acl + "/lun_1")
	l.link(l.tpgt()+"/lun/lun_1", acl+"/lun_1/lun_1")
	return l
}

// forbid removes an initiator, which drops its session.
func (l lio) forbid(initiator string) {
	l.t.Helper()
	acl := l.tpgt() + "/acls/" + initiator
	for _, step := range []func() error{
		func() error { return os.Remove(acl + "/lun_1/lun_1") },
		func() error { return syscall.Rmdir(acl + "/lun_1") },
		func() error { return syscall.Rmdir(acl) },
	} {
		if err := step(); err != nil {
			l.t.Fatal(err)
		}
	}
}

// down removes target and backstore, whatever is left of them.
func (l lio) down() {
	_ = os.WriteFile(l.tpgt()+"/enable", []byte("0"), 0)
	for _, pattern := range []string{
		"/acls/*/lun_1/lun_1", "/acls/*/lun_1", "/acls/*", "/lun/lun_1/backstore", "/lun/lun_1", "/np/*", "", "/..",
	} {
		paths, _ := filepath.Glob(l.tpgt() + pattern)
		if pattern == "/.." {
			paths = []string{filepath.Dir(l.tpgt())}
		}
		for _, p := range paths {
			l.remove(p)
		}
	}
	l.remove(l.backstore())
	if err := syscall.Rmdir(hba); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		l.t.Errorf("remove %s: %v", hba, err)
	}
}

func (l lio) remove(path string) {
	fi, err := os.Lstat(path)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		err = os.Remove(path)
	} else if err == nil {
		err = syscall.Rmdir(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Errorf("remove %s: %v", path, err)
	}
}

const guestInitiator = "iqn.2026-01.io.github.tarn-csi:test:node:worker-1"

func (l lio) target(portals ...string) attach.Target {
	return attach.Target{IQN: l.iqn, Portals: portals, LUN: 1, Serial: l.serial, Initiator: guestInitiator}
}

// guestAttacher is the real thing; log gets everything.
func guestAttacher(log io.Writer) *Attacher {
	l := logrus.New()
	l.SetOutput(log)
	l.SetLevel(logrus.TraceLevel)
	return New(run.New(l), Config{})
}

// nothingLeft verifies with the kernel and open-iscsi that no trace of the
// target is on this node.
func (l lio) nothingLeft(what string) {
	l.t.Helper()
	names, _ := filepath.Glob("/sys/class/iscsi_session/*/targetname")
	for _, n := range names {
		if b, _ := os.ReadFile(n); strings.TrimSpace(string(b)) == l.iqn {
			l.t.Errorf("%s: the session %s is left", what, n)
		}
	}
	if out, err := exec.Command("iscsiadm", "-m", "node", "-T", l.iqn).CombinedOutput(); err == nil {
		l.t.Errorf("%s: a record is left: %s", what, out)
	}
	if _, err := os.Stat("/etc/iscsi/nodes/" + l.iqn); err == nil {
		l.t.Errorf("%s: the record's directory is left", what)
	}
	if left, _ := filepath.Glob("/etc/iscsi/.tarn-*"); len(left) > 0 {
		l.t.Errorf("%s: unfinished records are left: %v", what, left)
	}
}

func quiet() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}
