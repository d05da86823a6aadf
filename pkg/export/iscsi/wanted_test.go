package iscsi

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

func TestWhatCannotBeServedIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	h := fakeHost(t)
	i := h.instance(t, "a")
	pair := func(user, password, mutualUser, mutualPassword string) func(*export.Volume) {
		return func(v *export.Volume) {
			v.Grants[0].CHAP = &chap.Credentials{User: user, Password: password, MutualUser: mutualUser, MutualPassword: mutualPassword}
		}
	}
	portal := func(p string) func(*export.Volume) {
		return func(v *export.Volume) { v.Portals = []netip.AddrPort{netip.MustParseAddrPort(p)} }
	}
	source := func(s string) func(*export.Volume) { return func(v *export.Volume) { v.Source = s } }
	name := func(s string) func(*export.Volume) { return func(v *export.Volume) { v.Grants[0].Initiator = s } }
	const secret = "sentinel-pass"
	for what, change := range map[string]func(*export.Volume){
		"no uuid":                func(v *export.Volume) { v.UUID = "" },
		"uuid that is a path":    func(v *export.Volume) { v.UUID = "../" + strings.Repeat("a", 29) },
		"no source":              source(""),
		"source that is no path": source("zvol"),
		"source outside /dev":    source("/etc/passwd"),
		"source with dots":       source("/dev/zvol/../sda"),
		"source with a comma":    source("/dev/zvol/tank/a,readonly=1"),
		"source with a newline":  source("/dev/zvol/tank/a\n"),
		"source too long":        source("/dev/" + strings.Repeat("x", 507)),
		"no size":                func(v *export.Volume) { v.SizeBytes = 0 },
		"no portals":             func(v *export.Volume) { v.Portals = nil },
		"portal without a port":  portal("127.0.0.1:0"),
		"portal with a zone":     portal("[fe80::1%eth0]:3260"),
		"portal that is nothing": func(v *export.Volume) { v.Portals = []netip.AddrPort{{}} },
		"no initiator":           name(""),
		"initiator of no form":   name("node-a"),
		"initiator that is path": name("iqn.2026-01.io.example:../x"),
		"initiator with a slash": name("iqn.2026-01.io.example:a/b"),
		"initiator with a blank": name("iqn.2026-01.io.example:a b"),
		"initiator of 224 bytes": name("iqn." + strings.Repeat("x", 220)),
		"an initiator twice": func(v *export.Volume) {
			v.Grants = append(v.Grants, grant("b", nil, true))
			v.Grants[1].Initiator = strings.ToUpper(initiator("a"))
		},
		"C22 user alone":          pair("u", "", "", ""),
		"C22 password alone":      pair("", secret, "", ""),
		"C22 mutual user alone":   pair("u", secret, "m", ""),
		"C22 mutual secret alone": pair("u", secret, "", secret+"2"),
		"C22 empty pair":          pair("", "", "", ""),
		"password of 256 bytes":   pair("u", strings.Repeat(secret, 20), "", ""),
		"password with a newline": pair("u", secret+"\n", "", ""),
		"password that is unset":  pair("u", "NULL"+secret, "", ""),
		"user that is unset":      pair("NULLuser", secret, "", ""),
		"mutual that is unset":    pair("u", secret, "m", "NULL"),
	} {
		v := grants(h.volume(t, 1), openA)
		change(&v)
		before := i.inject.Operations()
		err := i.Ensure(t.Context(), v)
		if !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
		if i.inject.Operations() != before {
			t.Errorf("%s: configfs was touched", what)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the password is in the error: %v", what, err)
		}
	}
	for _, id := range []string{"", "x", strings.Repeat("A", 32), "../" + strings.Repeat("a", 29)} {
		if err := i.Remove(t.Context(), id); !errors.Is(err, fault.Invalid) {
			t.Errorf("Remove %q: %v", id, err)
		}
		if _, err := i.Sessions(t.Context(), id); !errors.Is(err, fault.Invalid) {
			t.Errorf("Sessions %q: %v", id, err)
		}
	}
}

// C04: whatever the instance is called, every name fits every layer.
func TestC04NamesAreBounded(t *testing.T) {
	longest := strings.Repeat("i", ident.MaxIQN-ident.MaxNodeName-len(":node:")-len("iqn.2026-01.io.example:"))
	h := fakeHost(t)
	i := h.instance(t, longest)
	node := grant("a", &credentials, false)
	node.Initiator = i.naming.Initiator(strings.Repeat("n", ident.MaxNodeName))
	v := grants(h.volume(t, 1), node)
	n := i.names(v.UUID)
	if len(n.iqn) > ident.MaxIQN || len(node.Initiator) != ident.MaxIQN {
		t.Fatalf("IQNs of %d and %d bytes", len(n.iqn), len(node.Initiator))
	}
	back := n.backstore[strings.LastIndex(n.backstore, "/")+1:]
	if len(back) > 64 || !strings.HasSuffix(back, v.UUID) {
		t.Fatalf("backstore %q", back)
	}
	i.ensure(t, v)
	if list, err := i.List(t.Context()); err != nil || len(list) != 1 || !list[0].Complete || list[0].Clients[0] != node.Initiator {
		t.Fatalf("%v, %v", list, err)
	}
}

func TestInstancesHaveTheirOwnMarks(t *testing.T) {
	seen := map[mark]string{}
	for _, instance := range []string{"a", "b", "host-a", "host-b", "a.b"} {
		naming, err := ident.NewNaming("iqn.2026-01.io.example", instance)
		must(t, err)
		m := markOf(naming)
		if m.number < firstHBA || m.number >= 1<<31 {
			t.Errorf("%s: HBA %d", instance, m.number)
		}
		if other, ok := seen[m]; ok {
			t.Errorf("%s and %s share %v", instance, other, m)
		}
		seen[m] = instance
		if m != markOf(naming) {
			t.Errorf("%s: not stable", instance)
		}
	}
	// A frozen value: a new build must find what an old one has made.
	naming, err := ident.NewNaming("iqn.2026-01.io.example", "a")
	must(t, err)
	if got, want := markOf(naming), (mark{number: 0x492d4695, digits: "61fd117e"}); got != want {
		t.Errorf("mark %#v, want %#v", got, want)
	}
}
