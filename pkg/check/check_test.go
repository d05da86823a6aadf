package check

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/config"
)

func TestWorst(t *testing.T) {
	for want, list := range map[Status][]Finding{
		OK: {{Status: OK}}, Warn: {{Status: OK}, {Status: Warn}, {Status: OK}}, Fail: {{Status: Warn}, {Status: Fail}, {Status: Warn}},
	} {
		if got := Worst(list); got != want {
			t.Errorf("%v is %s", list, got)
		}
	}
}

func TestTheTableHasALineAFinding(t *testing.T) {
	list := []Finding{{"clock", OK, "right", ""}, {"pool tank", Fail, "is not imported", "zpool import tank"}}
	var b bytes.Buffer
	if err := Print(&b, list); err != nil {
		t.Fatal(err)
	}
	if want := "OK    clock      right\nFAIL  pool tank  is not imported: zpool import tank\n"; b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestJSONIsAListAlways(t *testing.T) {
	for _, list := range [][]Finding{nil, {{"a", Warn, "x < y", "do & see"}}} {
		var b bytes.Buffer
		if err := PrintJSON(&b, list); err != nil {
			t.Fatal(err)
		}
		var got []map[string]string
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got == nil || len(got) != len(list) {
			t.Fatalf("%s: %v", b.String(), err)
		}
		for _, m := range got {
			if len(m) != 4 || m["name"] != "a" || m["status"] != "WARN" || m["found"] != "x < y" || m["advice"] != "do & see" {
				t.Errorf("got %v", m)
			}
		}
	}
}

// A look that never ends is a finding, and holds up none of the others.
func TestWhatHangsIsAFailure(t *testing.T) {
	c := newWorld(t, nil, nil)
	c.patience = 30 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	began := time.Now()
	list := c.bounded(t.Context(), look{"dead", func(_ context.Context, add func(...Finding)) {
		add(ok("first", "seen"))
		<-release // not even the end of the context ends it
	}})
	if time.Since(began) > 10*time.Second {
		t.Errorf("it took %s", time.Since(began))
	}
	want(t, named(t, list, "first"), OK)
	want(t, named(t, list, "dead"), Fail, "no answer")
}

// Every tool hangs and every peer is silent: each line ends at its bound, and
// there is a line for each.
func TestADeadHostEnds(t *testing.T) {
	tl := tools{}
	for name := range packages {
		tl[name] = said{err: errHangs}
	}
	tl["lvm"], tl["lvmconfig"] = said{err: errHangs}, said{err: errHangs}
	c := newWorld(t, storageFiles.with(files{"etc/lvm/devices/system.devices": ""}), tl)
	c.patience = 50 * time.Millisecond
	c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	list := c.Run(t.Context())
	for _, name := range []string{"zfs version", "tool iscsiadm", "parent tank/csi", "lvm", "portal 192.0.2.10:2049", "portal 192.0.2.10:3260"} {
		want(t, named(t, list, name), Fail)
	}
}

func TestEachModeLooksAtWhatItNeeds(t *testing.T) {
	storage := []string{"tool zfs", "zfs version", "nfs server", "mountd", "boot order", "configfs", "lvm", "pool tank", "chap of pool tank", "address 192.0.2.10"}
	node := []string{"tool mount.nfs", "nfs client modules", "iscsid", "multipath", "iscsi initiator module"}
	both := []string{"user", "clock", "portal 192.0.2.10:2049", "portal 192.0.2.10:3260"}
	iscsi := []string{"configfs", "lvm", "chap of pool tank", "iscsid", "multipath", "iscsi initiator module", "portal 192.0.2.10:3260"}
	nfs := []string{"nfs server", "mountd", "boot order", "tool mount.nfs", "nfs client modules", "portal 192.0.2.10:2049"}
	for _, mode := range []string{config.All, config.Controller, config.Node} {
		for _, protocols := range [][]string{{"nfs"}, {"iscsi"}, {"nfs", "iscsi"}} {
			c := newWorld(t, nil, tools{})
			c.cfg.Mode, c.cfg.Protocols = mode, protocols
			if mode == config.Node {
				c.cfg.Pools, c.cfg.PortalHints = nil, []string{"192.0.2.10"}
			}
			c.dial = func(context.Context, string, string) (net.Conn, error) { return nil, context.DeadlineExceeded }
			have := map[string]bool{}
			for _, f := range c.Run(t.Context()) {
				if have[f.Name] {
					t.Errorf("%s is told twice", f.Name)
				}
				have[f.Name] = true
			}
			needed := map[string]bool{}
			for group, on := range map[*[]string]bool{&both: true, &storage: mode != config.Node, &node: mode != config.Controller} {
				for _, name := range *group {
					needed[name] = needed[name] || on
				}
			}
			for _, other := range []struct {
				protocol string
				names    []string
			}{{"nfs", nfs}, {"iscsi", iscsi}} {
				if !strings.Contains(strings.Join(protocols, " "), other.protocol) {
					for _, name := range other.names {
						needed[name] = false
					}
				}
			}
			for name, want := range needed {
				if have[name] != want {
					t.Errorf("%s %v: there is a line %q: %v", mode, protocols, name, have[name])
				}
			}
		}
	}
}

// Two configured pools may share a pool, and its addresses.
func TestNoLineIsToldTwice(t *testing.T) {
	c := newWorld(t, storageFiles, tools{})
	other := c.cfg.Pools[0]
	other.Name, other.Parent, other.ISCSIPort = "fast", "tank/fast", 3261
	c.cfg.Pools = append(c.cfg.Pools, other)
	c.dial = func(context.Context, string, string) (net.Conn, error) { return nil, context.DeadlineExceeded }
	list := c.Run(t.Context())
	for _, f := range list {
		named(t, list, f.Name)
	}
	for _, name := range []string{"pool tank", "parent tank/csi", "parent tank/fast", "portal 192.0.2.10:3261"} {
		named(t, list, name)
	}
}

func TestNotRootIsSaid(t *testing.T) {
	c := newWorld(t, nil, nil)
	want(t, c.user(), OK)
	c.euid = func() int { return 1000 }
	want(t, c.user(), Warn, "sudo")
}
