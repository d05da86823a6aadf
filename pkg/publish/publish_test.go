package publish

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func nfs() Context {
	return Context{Protocol: NFS, Mode: access.MultiNodeMultiWriter, Server: "192.0.2.10", Share: "/tank/csi/pvc-1"}
}

func iscsi() Context {
	return Context{
		Protocol:  ISCSI,
		ReadOnly:  true,
		IQN:       "iqn.2026-01.io.github.tarn-csi:main:0123456789abcdef0123456789abcdef",
		Portals:   []string{"192.0.2.10:3260", "[2001:db8::10]:3260"},
		LUN:       1,
		Serial:    "0123456789abcdef0123456789abcdef",
		Initiator: "iqn.2026-01.io.github.tarn-csi:main:node:worker-1.example",
		CHAP:      chap.Derived,
	}
}

func TestMapAndParseAreInverse(t *testing.T) {
	for _, c := range []Context{nfs(), iscsi()} {
		got, err := Parse(c.Map())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestEveryKeyIsNeededAndNamed(t *testing.T) {
	for _, c := range []Context{nfs(), iscsi()} {
		for key := range c.Map() {
			if key == KeyReadOnly || key == KeyMode {
				continue
			}
			m := c.Map()
			delete(m, key)
			_, err := Parse(m)
			if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `"`+key+`"`) {
				t.Errorf("%s without %s: %v", c.Protocol, key, err)
			}
		}
	}
	if _, err := Parse(nil); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "ControllerPublishVolume") {
		t.Errorf("no context: %v", err)
	}
}

func TestUnknownKeysAreIgnored(t *testing.T) {
	m := nfs().Map()
	m["csi.storage.k8s.io/pod.name"] = "web-0"
	got, err := Parse(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nfs(), got); diff != "" {
		t.Error(diff)
	}
}

func TestC55ValuesThatAToolCouldMisread(t *testing.T) {
	bad := []struct{ key, value string }{
		{KeyProtocol, "smb"}, {KeyProtocol, ""}, {KeyProtocol, "NFS"},
		{KeyReadOnly, ""}, {KeyReadOnly, "yes"},
		{KeyServer, "192.0.2.10,soft"}, {KeyServer, "192.0.2.10 -o soft"}, {KeyServer, "-o"}, {KeyServer, ""},
		{KeyServer, "[2001:db8::1]"}, {KeyServer, "fe80::1%eth0"}, {KeyServer, "192.0.2.300"}, {KeyServer, "a..b"},
		{KeyServer, "host:/x"}, {KeyServer, strings.Repeat("a.", 130) + "a"},
		{KeyShare, "/tank/csi/../../root"}, {KeyShare, "tank/csi"}, {KeyShare, "/"}, {KeyShare, ""}, {KeyShare, "/tank//csi"},
		{KeyShare, "/tank/csi/"}, {KeyShare, "/a,soft"}, {KeyShare, "/a b"}, {KeyShare, "/a\n"}, {KeyShare, `/a\040b`},
		{KeyShare, "/" + strings.Repeat("a", 4096)}, {KeyShare, "/a\xff"},
		{KeyIQN, ""}, {KeyIQN, "iqn.2026-01.IO.GITHUB"}, {KeyIQN, "eui.02004567A425678D"}, {KeyIQN, "iqn.2026-01.a/../b"},
		{KeyIQN, "iqn.2026-01.a:" + strings.Repeat("b", 223)}, {KeyIQN, "iqn.2026-01.a:b\nnode.startup = automatic"},
		{KeyPortals, ""}, {KeyPortals, "192.0.2.10:3260,"}, {KeyPortals, "192.0.2.10:0"}, {KeyPortals, "192.0.2.10:65536"},
		{KeyPortals, "192.0.2.10:03260"}, {KeyPortals, "192.0.2.10:"}, {KeyPortals, "[192.0.2.10]:3260"}, {KeyPortals, "[::1"},
		{KeyPortals, "[fe80::1%eth0]:3260"}, {KeyPortals, "fe80::1%eth0"}, {KeyPortals, "a b:1"}, {KeyPortals, "-o"},
		{KeyPortals, strings.TrimSuffix(strings.Repeat("192.0.2.1:1,", 17), ",")},
		{KeyLUN, "0"}, {KeyLUN, "-1"}, {KeyLUN, "01"}, {KeyLUN, "16384"}, {KeyLUN, "x"}, {KeyLUN, ""},
		{KeySerial, "pvc-1"}, {KeySerial, ""}, {KeySerial, strings.Repeat("A", 32)},
		{KeyInitiator, "worker-1"}, {KeyInitiator, ""},
		{KeyCHAP, ""}, {KeyCHAP, "off"},
	}
	for _, b := range bad {
		m := iscsi().Map()
		if _, ok := m[b.key]; !ok {
			m = nfs().Map()
		}
		m[b.key] = b.value
		_, err := Parse(m)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), b.key) {
			t.Errorf("%s=%q: %v", b.key, b.value, err)
		}
		if err != nil && (strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "\xff") || strings.ContainsRune(err.Error(), utf8.RuneError)) {
			t.Errorf("%s=%q: the message holds raw text: %q", b.key, b.value, err)
		}
	}
}

func TestHostsAndPortalsThatMustWork(t *testing.T) {
	for _, server := range []string{"192.0.2.10", "2001:db8::10", "nas", "nas.example", "NAS-1.example"} {
		m := nfs().Map()
		m[KeyServer] = server
		if _, err := Parse(m); err != nil {
			t.Errorf("server %s: %v", server, err)
		}
	}
	// The four forms of C28.
	for _, portal := range []string{"[2001:db8::10]:3260", "2001:db8::10", "[2001:db8::10]", "nas.example:3260", "192.0.2.10", "192.0.2.10:3260"} {
		m := iscsi().Map()
		m[KeyPortals] = portal
		c, err := Parse(m)
		if err != nil {
			t.Errorf("portal %s: %v", portal, err)
			continue
		}
		if diff := cmp.Diff([]string{portal}, c.Portals); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReadOnly(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		m := nfs().Map()
		m[KeyReadOnly] = value
		c, err := Parse(m)
		if err != nil || c.ReadOnly != want {
			t.Errorf("%s: %v, %v", value, c.ReadOnly, err)
		}
	}
	if c, err := Parse(nfs().Map()); err != nil || c.ReadOnly {
		t.Errorf("absent: %v, %v", c.ReadOnly, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("nfs", "192.0.2.1", "/tank/a", "", "")
	f.Add("iscsi", "", "", iscsi().IQN, "[2001:db8::1]:3260")
	f.Fuzz(func(t *testing.T, protocol, server, share, iqn, portals string) {
		m := iscsi().Map()
		maps.Copy(m, map[string]string{KeyProtocol: protocol, KeyServer: server, KeyShare: share, KeyIQN: iqn, KeyPortals: portals})
		c, err := Parse(m)
		if err != nil {
			return
		}
		again, err := Parse(c.Map())
		if err != nil {
			t.Fatalf("%v: what was read cannot be read again: %v", c, err)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
