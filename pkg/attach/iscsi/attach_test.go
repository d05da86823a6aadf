package iscsi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

var ctx = context.Background()

// nothingLeft verifies that a failed attach or a detach left neither session
// nor record nor unfinished record.
func (w world) nothingLeft(t *testing.T, what string) {
	t.Helper()
	if s := w.sessionsLeft(); len(s) > 0 {
		t.Errorf("%s: sessions are left: %v", what, s)
	}
	if r := w.recordsLeft(); len(r) > 0 {
		t.Errorf("%s: records are left: %v", what, r)
	}
}

func TestAttachAndDetach(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: withCHAP()})
	a := w.attacher(io.Discard)
	mounted(a)
	d, err := a.Attach(ctx, testTarget(), credentials)
	if err != nil {
		t.Fatal(err)
	}
	if d.Path != w.path("dev/sdbb") || d.Major != 8 || d.Minor != 176 {
		t.Errorf("attached %+v", d)
	}
	found, ok, err := a.Find(ctx, testTarget())
	if err != nil || !ok || found != d {
		t.Errorf("Find: %+v, %v, %v", found, ok, err)
	}
	// A repeat makes no second session and no login.
	again, err := a.Attach(ctx, testTarget(), credentials)
	if err != nil || again != d {
		t.Errorf("again: %+v, %v", again, err)
	}
	if calls := w.calls("--login"); len(calls) != 1 {
		t.Errorf("logins: %q", calls)
	}
	for range 2 {
		if err := a.Detach(ctx, testTarget()); err != nil {
			t.Fatal(err)
		}
		w.nothingLeft(t, "detach")
	}
	if _, ok, err := a.Find(ctx, testTarget()); ok || err != nil {
		t.Errorf("Find after the detach: %v, %v", ok, err)
	}
}

func TestRecordOfALogin(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: withCHAP()})
	a := w.attacher(io.Discard)
	a.cfg = Config{ReplacementTimeout: 30 * time.Second, LoginTimeout: 7 * time.Second}
	if _, err := a.Attach(ctx, testTarget(), credentials); err != nil {
		t.Fatal(err)
	}
	path := w.path(recordName(testIQN, testPortal))
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the record has mode %v, %v", fi.Mode(), err)
	}
	record := w.get(recordName(testIQN, testPortal))
	for key, want := range map[string]string{
		"node.startup":                           "manual", // C26: no login at boot
		"node.conn[0].startup":                   "manual",
		"node.session.initial_login_retry_max":   "0",
		"node.session.nr_sessions":               "1",
		"node.session.timeo.replacement_timeout": "30",
		"node.conn[0].timeo.login_timeout":       "7",
		"node.session.auth.authmethod":           "CHAP",
		"node.session.auth.username":             "worker-1",
		"node.session.auth.password":             "sentinel-password",
		"node.session.auth.username_in":          "tarn",
		"node.session.auth.password_in":          "sentinel-mutual",
		"node.session.auth.chap_algs":            "MD5",
		"iface.initiatorname":                    testInitiator,
		"node.conn[0].address":                   "192.0.2.10:3260",
	} {
		if got := value(record, key); got != want || strings.Count(record, key+" = ") != 1 {
			t.Errorf("%s is %q, %d times, want %q", key, got, strings.Count(record, key+" = "), want)
		}
	}
	if !strings.HasSuffix(record, "# END RECORD\n") {
		t.Errorf("the record ends with %q", record[len(record)-30:])
	}
}

func TestWithoutCHAPTheNodesOwnCredentialsAreNotSent(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	if _, err := w.attacher(io.Discard).Attach(ctx, testTarget(), nil); err != nil {
		t.Fatal(err)
	}
	record := w.get(recordName(testIQN, testPortal))
	if value(record, "node.session.auth.authmethod") != "None" || strings.Contains(record, "somebody") || strings.Contains(record, "else") {
		t.Errorf("the record is\n%s", record)
	}
}

func TestC28AllPortalForms(t *testing.T) {
	for _, p := range []string{"[2001:db8::10]:3260", "2001:db8::10", "nas.example:3260", "192.0.2.10"} {
		w := newWorld(t)
		w.serve(map[string]server{"[2001:db8::10]:3260": open(), "nas.example:3260": open(), "192.0.2.10:3260": open()})
		target := testTarget()
		target.Portals = []string{p}
		a := w.attacher(io.Discard)
		mounted(a)
		if _, err := a.Attach(ctx, target, nil); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		if err := a.Detach(ctx, target); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		w.nothingLeft(t, p)
	}
}

func TestPortalsAreTriedInOrder(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{"192.0.2.12:3260": open(), "192.0.2.13:3260": open()})
	target := testTarget()
	target.Portals = []string{"192.0.2.11", "192.0.2.12", "192.0.2.13"}
	if _, err := w.attacher(io.Discard).Attach(ctx, target, nil); err != nil {
		t.Fatal(err)
	}
	if calls := w.calls("--login"); len(calls) != 2 || !strings.Contains(calls[1], "192.0.2.12") {
		t.Errorf("logins: %q", calls)
	}
	if s := w.sessionsLeft(); len(s) != 1 {
		t.Errorf("sessions: %v", s)
	}
	if r := w.recordsLeft(); len(r) != 1 || !strings.HasSuffix(r[0], "192.0.2.12,3260") {
		t.Errorf("records: %v", r)
	}
}

func TestLoginFailuresHaveAKindAndLeaveNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		servers map[string]server
		chap    *chap.Credentials
		kind    error
		text    string
	}{
		{"no answer", nil, nil, fault.Unavailable, ""},
		{"connection refused", map[string]server{testPortal: {Exit: 4}}, nil, fault.Unavailable, ""},
		{"login failure", map[string]server{testPortal: {Exit: 5}}, nil, fault.Unavailable, ""},
		{"PDU time-out", map[string]server{testPortal: {Exit: 11}}, nil, fault.Unavailable, ""},
		{"no iscsid", map[string]server{testPortal: {Exit: 20}}, nil, fault.Unavailable, "iscsid is not running"},
		{"something new", map[string]server{testPortal: {Exit: 99}}, nil, fault.Unavailable, ""},
		{"other initiator", map[string]server{testPortal: {Initiator: "iqn.2026-01.io.example:other"}}, nil, fault.Precondition, "refused this node"},
		{"no CHAP", map[string]server{testPortal: withCHAP()}, nil, fault.Precondition, "refused this node"},
		{"wrong password", map[string]server{testPortal: withCHAP()},
			&chap.Credentials{User: "worker-1", Password: "wrong"}, fault.Precondition, "refused this node"},
		{"wrong mutual password", map[string]server{testPortal: withCHAP()},
			&chap.Credentials{User: "worker-1", Password: "sentinel-password", MutualUser: "tarn", MutualPassword: "wrong"}, fault.Precondition, "mutual"},
		{"blank in the password", map[string]server{testPortal: withCHAP()},
			&chap.Credentials{User: "worker-1", Password: "x\nnode.startup = automatic"}, fault.Invalid, ""},
	} {
		w := newWorld(t)
		w.serve(c.servers)
		_, err := w.attacher(io.Discard).Attach(ctx, testTarget(), c.chap)
		if fault.Kind(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
		w.nothingLeft(t, c.name)
	}
}

// iscsid may see the target close the connection before it has read why.
func TestLoginFailureWithoutAReasonIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: withCHAP()})
	w.set("login race.mode", "xx")
	_, err := w.attacher(io.Discard).Attach(ctx, testTarget(), &chap.Credentials{User: "worker-1", Password: "wrong"})
	if fault.Kind(err) != fault.Precondition {
		t.Error(err)
	}
	if calls := w.calls("--login"); len(calls) != 3 {
		t.Errorf("logins: %q", calls)
	}
	w.nothingLeft(t, "race")
}

func TestRefusalIsReportedBeforeSilence(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{"192.0.2.12:3260": withCHAP()})
	target := testTarget()
	target.Portals = []string{"192.0.2.11", "192.0.2.12"}
	_, err := w.attacher(io.Discard).Attach(ctx, target, nil)
	if fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "192.0.2.11") || !strings.Contains(err.Error(), "192.0.2.12") {
		t.Error(err)
	}
	w.nothingLeft(t, "two portals")
}

func TestSessionExistsIsASuccess(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: {Exit: 15}})
	a := w.attacher(io.Discard)
	// It exists for iscsid, and the kernel does not show it: no device.
	if _, err := a.Attach(ctx, testTarget(), nil); fault.Kind(err) != fault.Unavailable {
		t.Error(err)
	}
	w.nothingLeft(t, "exit 15")
}

func TestDiskOfAnotherVolumeIsRefused(t *testing.T) {
	w := newWorld(t)
	s := open()
	s.Serial = strings.Repeat("f", 32)
	w.serve(map[string]server{testPortal: s})
	a := w.attacher(io.Discard)
	mounted(a)
	_, err := a.Attach(ctx, testTarget(), nil)
	if fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "serial") {
		t.Error(err)
	}
	if calls := w.calls("/rescan"); len(calls) != 1 {
		t.Errorf("rescans: %q", calls)
	}
	w.nothingLeft(t, "wrong serial")
}

func TestStaleSerialIsReadAgain(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	s := open()
	s.Serial = strings.Repeat("f", 32)
	w.serve(map[string]server{testPortal: s})
	w.set("fresh vpd", "\x00\x80\x00\x20"+testSerial)
	if _, err := a.Attach(ctx, testTarget(), nil); err != nil {
		t.Errorf("a page that was old: %v", err)
	}
	// The other way round: the kernel remembers the right serial of a session
	// that was there before, and the disk has become another one.
	w.set("fresh vpd", "\x00\x80\x00\x20"+strings.Repeat("e", 32))
	if _, err := a.Attach(ctx, testTarget(), nil); fault.Kind(err) != fault.Precondition {
		t.Errorf("a disk that was exchanged under its session: %v", err)
	}
}

func TestKnownSessionIsScannedForItsDisk(t *testing.T) {
	w := newWorld(t)
	s := open()
	s.NoDisk = true
	w.serve(map[string]server{testPortal: s})
	a := w.attacher(io.Discard)
	mounted(a)
	a.deviceTimeout = 300 * time.Millisecond
	if _, err := a.Attach(ctx, testTarget(), nil); fault.Kind(err) != fault.Unavailable {
		t.Errorf("no disk: %v", err)
	}
	w.nothingLeft(t, "no disk")
	w.open(testIQN, testInitiator, s)
	a.deviceTimeout = 2 * time.Second
	if _, err := a.Attach(ctx, testTarget(), nil); err != nil {
		t.Errorf("a session without its disk: %v", err)
	}
}

// The kernel shows the disk's directory before the disk is complete.
func TestHalfMadeDiskIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	w.open(testIQN, testInitiator, open())
	must(os.Rename(w.path("sys/block/sdbb"), w.path("later")))
	if _, ok, err := a.Find(ctx, testTarget()); ok || err != nil {
		t.Errorf("Find: %v, %v", ok, err)
	}
	time.AfterFunc(200*time.Millisecond, func() { must(os.Rename(w.path("later"), w.path("sys/block/sdbb"))) })
	if _, err := a.Attach(ctx, testTarget(), nil); err != nil {
		t.Error(err)
	}
}

func TestLostSessionIsReplacedUnlessInUse(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	a := w.attacher(io.Discard)
	w.open(testIQN, testInitiator, open())
	w.set("sys/class/iscsi_session/session1/state", "FAILED\n")
	mounted(a, mount.Info{Target: "/g", FSType: "ext4", Major: 8, Minor: 176})
	if _, err := a.Attach(ctx, testTarget(), nil); fault.Kind(err) != fault.Unavailable {
		t.Errorf("lost and mounted: %v", err)
	}
	if s := w.sessionsLeft(); len(s) != 1 {
		t.Errorf("a session in use was ended: %v", s)
	}
	mounted(a)
	if _, err := a.Attach(ctx, testTarget(), nil); err != nil {
		t.Errorf("lost: %v", err)
	}
	if s, _ := a.sessions(testIQN); len(s) != 1 || s[0].state != loggedIn {
		t.Errorf("sessions: %+v", s)
	}
}

func TestC29VolumesDoNotShareASession(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	mounted(a)
	w.open("iqn.2026-01.io.github.tarn-csi:a:ffffffffffffffffffffffffffffffff", testInitiator, open())
	w.open(testIQN+"0", testInitiator, open()) // ours is its prefix
	before := w.sessionsLeft()
	if d, ok, err := a.Find(ctx, testTarget()); ok || err != nil {
		t.Errorf("another volume's disk is found: %+v, %v", d, err)
	}
	if err := a.Detach(ctx, testTarget()); err != nil {
		t.Error(err)
	}
	if after := w.sessionsLeft(); !slices.Equal(before, after) {
		t.Errorf("sessions were %v and are %v", before, after)
	}
}

func TestC58SecretsStayOutOfLogsAndErrors(t *testing.T) {
	for name, prepare := range map[string]func(w world){
		"good":            func(w world) { w.serve(map[string]server{testPortal: withCHAP()}) },
		"refused":         func(w world) { w.serve(map[string]server{testPortal: open()}); w.set("login.mode", "24") },
		"mutual refused":  func(w world) { w.set("login.mode", "19") },
		"strange failure": func(w world) { w.set("login.mode", "77") },
		"missing":         func(w world) { w.remove("bin/iscsiadm") },
		"hanging":         func(w world) { w.set("iscsiadm.mode", "hang") },
		"no record":       func(w world) { w.set("record.mode", "elsewhere") },
	} {
		w := newWorld(t)
		prepare(w)
		var log bytes.Buffer
		a := w.attacher(&log)
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := a.Attach(short, testTarget(), credentials)
		cancel()
		if (err == nil) != (name == "good") {
			t.Errorf("%s: %v", name, err)
		}
		all := fmt.Sprint(err) + log.String() + w.get("calls") + fmt.Sprintf("%v %+v %#v", credentials, credentials, *credentials)
		for _, secret := range []string{"sentinel-password", "sentinel-mutual"} {
			if strings.Contains(all, secret) {
				t.Errorf("%s: %s leaks: %s", name, secret, all)
			}
		}
		if !strings.Contains(log.String(), interfaceName(testInitiator)) {
			t.Errorf("%s: what is no secret must stay readable: %s", name, log.String())
		}
	}
}

func TestHangingLoginEndsAtTheDeadlineAndIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("after login.mode", "hang") // iscsiadm hangs, iscsid logs in all the same
	a := w.attacher(io.Discard)
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	begin := time.Now()
	_, err := a.Attach(short, testTarget(), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	w.nothingLeft(t, "cut login")
}

// iscsid opens the session after iscsiadm was killed.
func TestSessionOfACutLoginThatComesLateIsClosed(t *testing.T) {
	w := newWorld(t)
	w.serve(map[string]server{testPortal: open()})
	w.set("before login.mode", "hang")
	a := w.attacher(io.Discard)
	a.cfg.LoginTimeout = 20 * time.Second
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for len(w.calls("--login")) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		time.Sleep(500 * time.Millisecond)
		w.open(testIQN, testInitiator, open())
	}()
	if _, err := a.Attach(short, testTarget(), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(w.calls(" -u")) == 0 {
		t.Error("the session that came late was not waited for")
	}
	w.nothingLeft(t, "late session")
}

func TestReady(t *testing.T) {
	w := newWorld(t)
	a := w.attacher(io.Discard)
	if err := a.Ready(ctx); err != nil {
		t.Error(err)
	}
	w.remove("sys/class/iscsi_transport")
	if err := a.Ready(ctx); err != nil {
		t.Errorf("a module that can be loaded: %v", err)
	}
	w.set("modprobe.mode", "missing")
	if err := a.Ready(ctx); fault.Kind(err) != fault.Unavailable || !strings.Contains(err.Error(), "iscsi_tcp") {
		t.Errorf("no module: %v", err)
	}
	w.set("proc/net/unix", "0: 0 @something\n")
	if err := a.Ready(ctx); fault.Kind(err) != fault.Unavailable || !strings.Contains(err.Error(), "iscsid") {
		t.Errorf("no iscsid: %v", err)
	}
	w.remove("bin/iscsiadm")
	if err := a.Ready(ctx); fault.Kind(err) != fault.Unavailable || !strings.Contains(err.Error(), "iscsiadm") {
		t.Errorf("no iscsiadm: %v", err)
	}
}
