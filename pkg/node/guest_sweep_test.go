//go:build guest

package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	exports "github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	exportiscsi "github.com/tarn-csi/tarn/pkg/export/iscsi"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/test/machine"
)

func (g *guest) sweep() time.Duration {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	begin := time.Now()
	must(g.t, g.s.Sweep(ctx))
	return time.Since(begin)
}

// remains reports whether the node has a session with a target, and a record.
func remains(iqn string) (session, record bool) {
	names, _ := filepath.Glob("/sys/class/iscsi_session/*/targetname")
	for _, n := range names {
		b, err := os.ReadFile(n)
		session = session || err == nil && strings.TrimSpace(string(b)) == iqn
	}
	_, err := os.Stat("/etc/iscsi/nodes/" + iqn)
	return session, err == nil
}

func (v *guestVolume) wantAttached(what string, want bool) {
	v.g.t.Helper()
	if session, record := remains(v.context.IQN); session != want || record != want {
		v.g.t.Errorf("%s: session %v, record %v, want %v", what, session, record, want)
	}
}

// foreignSession logs in to a target of another instance with this node's own
// tools.
func (g *guest) foreignSession() (iqn string) {
	g.t.Helper()
	zvol := pool.Name + "/foreign"
	machine.Sh(g.t, "zfs", "create", "-s", "-V", fmt.Sprint(guestSize), zvol)
	pool.DestroyAtEnd(g.t, zvol)
	machine.Device(g.t, zvol)
	other, err := ident.NewNaming("iqn.2026-01.io.github.tarn-csi", "other")
	must(g.t, err)
	log := logrus.New()
	e := exportiscsi.New(exportiscsi.Config{FS: configfs.NewHost(configfs.Root), Naming: other, LockPath: filepath.Join(g.dir, "lock"), Log: log, Runner: run.New(log)})
	uuid := strings.Repeat("f", 32)
	portal := netip.MustParseAddrPort("127.0.0.1:3260")
	must(g.t, e.Ensure(g.t.Context(), exports.Volume{
		ID: "tank/other", UUID: uuid, Source: "/dev/zvol/" + zvol, SizeBytes: guestSize, Portals: []netip.AddrPort{portal},
		Grants: []exports.Grant{{Node: nodeName, Initiator: other.Initiator(nodeName)}},
	}))
	t := attach.Target{IQN: other.Target(uuid), Portals: []string{portal.String()}, LUN: exportiscsi.LUN, Serial: uuid, Initiator: other.Initiator(nodeName)}
	g.t.Cleanup(func() {
		if err := g.initiator.Detach(context.Background(), t); err != nil {
			g.t.Error(err)
		}
		if err := e.Remove(context.Background(), uuid); err != nil {
			g.t.Error(err)
		}
	})
	_, err = g.initiator.Attach(g.t.Context(), t, nil)
	must(g.t, err)
	return t.IQN
}

func (v *guestVolume) device() string {
	v.g.t.Helper()
	d, ok, err := v.g.initiator.Find(context.Background(), targetOf(v))
	if err != nil || !ok {
		v.g.t.Fatalf("%s is not attached: %v", v.id, err)
	}
	return d.Path
}

// Every record is lost, as when the private directory of a node is emptied, C34.
func TestGuestSweep(t *testing.T) {
	g := newGuest(t)
	orphan, recorded, open, mounted := g.disk(block(), ""), g.disk(block(), ""), g.disk(block(), ""), g.disk(ext4(), "")
	all := []*guestVolume{orphan, recorded, open, mounted}
	for _, v := range all {
		must(t, v.stage())
	}
	g.sweep()
	for _, v := range all {
		v.wantAttached("staged", true)
	}
	foreign := g.foreignSession()
	file, err := os.Open(open.device())
	must(t, err)
	machine.Sh(t, "iscsiadm", "-m", "node", "-T", recorded.context.IQN, "-u")
	g.loseState()
	t.Logf("a sweep of two orphans beside three that stay took %s", g.sweep())
	orphan.wantAttached("no record", false)
	recorded.wantAttached("a node record alone", false)
	open.wantAttached("open", true)
	mounted.wantAttached("mounted", true)
	must(t, overwrite(filepath.Join(mounted.staging, "file"), "hello"))
	if session, record := remains(foreign); !session || !record {
		t.Errorf("another instance's: session %v, record %v", session, record)
	}
	must(t, mounted.unstage())

	// The disk is there before the stage is done with it.
	staged := make(chan error, 1)
	go func() { staged <- orphan.stage() }()
	sweeps, seen := 0, 0
	for done := false; !done; sweeps++ {
		if session, _ := remains(orphan.context.IQN); session {
			seen++
		}
		g.sweep()
		select {
		case err := <-staged:
			must(t, err)
			done = true
		default:
		}
	}
	orphan.wantAttached("staged beside sweeps", true)
	t.Logf("%d sweeps while a volume was staged, %d beside its session", sweeps, seen)
	must(t, orphan.unstage())

	must(t, file.Close())
	speak := machine.Silence(t, "127.0.0.1")
	took := g.sweep()
	t.Logf("a sweep took %s while the server was silent", took)
	if took > orphanTimeout+10*time.Second {
		t.Error("the sweep is not bounded")
	}
	speak()
	machine.Eventually(t, "the end of an orphan of a server that was silent", func() bool {
		g.sweep()
		session, record := remains(open.context.IQN)
		return !session && !record
	})
}
