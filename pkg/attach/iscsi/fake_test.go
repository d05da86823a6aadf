package iscsi

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/google/renameio/v2"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/run"
)

// The fakes are this test binary under the name of a tool. They act on a
// directory that $TARN_FAKE names: a sysfs tree, open-iscsi's database, the
// targets that answer, and how a tool misbehaves.
var fakes = map[string]func(world, []string) int{
	"iscsiadm": fakeIscsiadm, "tee": fakeTee, "blockdev": fakeBlockdev,
	"multipath": fakeMultipath, "multipathd": fakeMultipathd, "modprobe": fakeModprobe,
}

func TestMain(m *testing.M) {
	tool := filepath.Base(os.Args[0])
	if fake, ok := fakes[tool]; ok {
		w := world(os.Getenv("TARN_FAKE"))
		w.add("calls", tool+" "+strings.Join(os.Args[1:], " "))
		if w.mode(tool) == "hang" {
			time.Sleep(600 * time.Second)
		}
		os.Exit(fake(w, os.Args[1:]))
	}
	code := m.Run()
	if err := afterAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// afterAll takes down what all tests shared.
var afterAll = func() error { return nil }

// world is the directory of the fakes.
type world string

// server is a target that answers at a portal.
type server struct {
	Serial string
	// Initiator is let in, with the credentials if there are any.
	Initiator string
	User, Password,
	MutualUser, MutualPassword string
	// Exit, if not 0, is what a login ends with.
	Exit int
	// NoDisk: the LUN does not appear until the host is scanned for it.
	NoDisk bool
}

const (
	testIQN       = "iqn.2026-01.io.github.tarn-csi:a:0123456789abcdef0123456789abcdef"
	testInitiator = "iqn.2026-01.io.github.tarn-csi:a:node:worker-1"
	testSerial    = "0123456789abcdef0123456789abcdef"
	testPortal    = "192.0.2.10:3260"
)

func testTarget() attach.Target {
	return attach.Target{IQN: testIQN, Portals: []string{testPortal}, LUN: 1, Serial: testSerial, Initiator: testInitiator}
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world(t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "etc", "dev", "proc/net", "sys/class/iscsi_session", "sys/class/iscsi_transport/tcp", "sys/class/scsi_host"} {
		w.mkdir(dir)
	}
	for tool := range fakes {
		w.link(self, "bin/"+tool)
	}
	w.set("proc/net/unix", "Num RefCount\n0: 0 @ISCSIADM_ABSTRACT_NAMESPACE\n")
	t.Setenv("PATH", w.path("bin"))
	t.Setenv("TARN_FAKE", string(w))
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each fake lasts a second under the race detector
	return w
}

// serve makes targets answer, by portal.
func (w world) serve(servers map[string]server) {
	b, err := json.Marshal(servers)
	if err != nil {
		panic(err)
	}
	w.set("servers", string(b))
}

func (w world) servers() map[string]server {
	servers := map[string]server{}
	_ = json.Unmarshal([]byte(w.get("servers")), &servers)
	return servers
}

func open() server { return server{Serial: testSerial, Initiator: testInitiator} }

func (w world) attacher(log io.Writer) *Attacher {
	l := logrus.New()
	l.SetOutput(log)
	l.SetLevel(logrus.TraceLevel)
	a := New(run.New(l), Config{LoginTimeout: time.Second})
	a.sys, a.dev, a.udev, a.proc = w.path("sys"), w.path("dev"), w.path("udev"), w.path("proc")
	a.databases = []string{w.path("etc"), w.path("no-such-database")}
	a.deviceTimeout, a.unlistedTimeout, a.busyTimeout = 2*time.Second, 200*time.Millisecond, 300*time.Millisecond
	a.claimed = func(path string) bool { return w.mode("claimed "+filepath.Base(path)) != "" }
	a.number = func(path string) (major, minor uint32, ok bool) {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, 0, false
		}
		major, minor, err = parseNumber(strings.TrimSpace(string(b)))
		return major, minor, err == nil
	}
	return a
}

// process makes a process that has a file open, on a mount of a filesystem type.
func (w world) process(pid int, fsType, file string) {
	dir := fmt.Sprintf("proc/%d", pid)
	w.set(dir+"/comm", "worker\n")
	w.set(dir+"/mountinfo", "1 0 259:1 / / rw - ext4 /dev/root rw\n7 1 0:6 / /dev rw - "+fsType+" udev rw\n")
	w.link(fmt.Sprintf("mnt:[%d]", pid), dir+"/ns/mnt")
	w.link("socket:[1]", dir+"/fd/0")
	w.link(file, dir+"/fd/3")
	w.set(dir+"/fdinfo/3", "pos:\t0\nflags:\t02\nmnt_id:\t7\n")
}

// mounted gives the attacher a mount table of its own.
func mounted(a *Attacher, infos ...mount.Info) {
	a.mounts = fixedMounts(infos)
}

func (w world) path(name string) string { return filepath.Join(string(w), name) }

func (w world) mode(tool string) string { return w.get(tool + ".mode") }

func (w world) get(name string) string {
	b, _ := os.ReadFile(w.path(name))
	return string(b)
}

// set is seen whole or not at all, as what udev and the kernel write is.
func (w world) set(name, content string) {
	must(os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	must(renameio.WriteFile(w.path(name), []byte(content), 0o600))
}

func (w world) add(name, line string) {
	f, err := os.OpenFile(w.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(err)
	defer f.Close()
	fmt.Fprintln(f, line)
}

func (w world) mkdir(name string) { must(os.MkdirAll(w.path(name), 0o755)) }

func (w world) link(to, name string) {
	must(os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	must(os.Symlink(to, w.path(name)))
}

func (w world) remove(name string) { must(os.RemoveAll(w.path(name))) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// calls returns the started commands that hold the text.
func (w world) calls(text string) []string {
	var list []string
	for line := range strings.Lines(w.get("calls")) {
		if line = strings.TrimSpace(line); strings.Contains(line, text) {
			list = append(list, line)
		}
	}
	return list
}

// sessionsLeft are the kernel's sessions, recordsLeft all files of open-iscsi's
// database apart from interface records.
func (w world) sessionsLeft() []string {
	list, err := filepath.Glob(w.path("sys/class/iscsi_session/session*"))
	must(err)
	return list
}

func (w world) recordsLeft() []string {
	var list []string
	must(filepath.Walk(w.path("etc"), func(path string, fi os.FileInfo, err error) error {
		if err == nil && !fi.IsDir() && filepath.Base(filepath.Dir(path)) != "ifaces" {
			list = append(list, path)
		}
		return err
	}))
	return list
}

var credentials = &chap.Credentials{
	User: "worker-1", Password: "sentinel-password", MutualUser: "tarn", MutualPassword: "sentinel-mutual",
}

func withCHAP() server {
	s := open()
	s.User, s.Password = credentials.User, credentials.Password
	s.MutualUser, s.MutualPassword = credentials.MutualUser, credentials.MutualPassword
	return s
}
