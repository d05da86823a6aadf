package ident

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// badAddresses name no single node everywhere, or are no literal address.
var badAddresses = []string{
	"", "*", "0.0.0.0/0", "192.0.2.0/24", "::/0", "worker-1", "worker-1.example", "localhost", "192.0.2", "192.0.2.256", "0300.0.2.1",
	"192.0.2.1:3260", "[2001:db8::1]", "::ffff:192.0.2.1", "::ffff:1.2.3.4", "fe80::1", "fe80::1%eth0", "2001:db8::1%eth0",
	"2001:DB8::1", "2001:db8:0::1", "224.0.0.1", "239.1.2.3", "ff02::1", "0.0.0.0", "::", "169.254.1.1", "255.255.255.255",
	" 192.0.2.1", "192.0.2.1 ", "192.0.2.1(rw)", "@group", "-o", "192.0.2.1\x00",
}

func TestAddressesThatNameNoSingleNodeAreRefused(t *testing.T) {
	for _, s := range badAddresses {
		if a, err := ParseAddress(s); fault.Kind(err) != fault.Invalid || a.IsValid() {
			t.Errorf("address %q: %v, %v", s, a, err)
		}
		if id, err := ParseNodeID("worker-1@" + s); fault.Kind(err) != fault.NotFound || id.Name != "" {
			t.Errorf("node id with %q: %v, %v", s, id, err)
		}
		if id, err := ParseNodeID("worker-1@192.0.2.1," + s); fault.Kind(err) != fault.NotFound || id.Name != "" {
			t.Errorf("node id with %q second: %v, %v", s, id, err)
		}
	}
	for _, s := range []string{"192.0.2.1", "10.0.0.1", "127.0.0.1", "2001:db8::1", "fd00::1", "::1"} {
		if a, err := ParseAddress(s); err != nil || a.String() != s {
			t.Errorf("address %q: %v, %v", s, a, err)
		}
	}
}

func TestForeignNodeIDsAreUnknown(t *testing.T) {
	if _, err := ParseNodeID(""); !errors.Is(err, fault.Invalid) {
		t.Errorf("empty: %v", err)
	}
	for _, s := range []string{
		"worker-1", "@192.0.2.1", "Worker-1@192.0.2.1", "-w@192.0.2.1", "w-@192.0.2.1", "w..x@192.0.2.1", ".w@192.0.2.1", "w.@192.0.2.1",
		"w_1@192.0.2.1", "../w@192.0.2.1", "w/x@192.0.2.1", "w x@192.0.2.1", "w\n@192.0.2.1", "w\x00@192.0.2.1", "w@@192.0.2.1",
		"w@192.0.2.1@x", "w@192.0.2.1,,192.0.2.2", strings.Repeat("w", MaxNodeName+1) + "@192.0.2.1",
		"w@" + strings.TrimSuffix(strings.Repeat("192.0.2.1,", 13), ","),
	} {
		id, err := ParseNodeID(s)
		if fault.Kind(err) != fault.NotFound || id.Name != "" || id.Addresses != nil {
			t.Errorf("%q: %v, %v", s, id, err)
		}
		checkMessage(t, err)
	}
}

func TestC53RecordedNodeIDsParse(t *testing.T) {
	for _, line := range recorded(t, "node-ids") {
		if id, err := ParseNodeID(line); err != nil || id.String() != line {
			t.Errorf("%q parses to %v, %v", line, id, err)
		}
	}
}

func anyHost() *rapid.Generator[string] {
	label := `[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`
	return rapid.OneOf(
		rapid.StringMatching(label),
		rapid.StringMatching(label+`(\.`+label+`){1,9}`),
		rapid.StringMatching(`[A-Z][a-z]{1,8}-[0-9]`),
	)
}

func anyAddress() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		n := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes"))
		return a
	}).Filter(func(a netip.Addr) bool { _, err := ParseAddress(a.String()); return err == nil })
}

func TestNodeIDsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, err := NodeName(anyHost().Filter(func(s string) bool { return len(s) <= 253 }).Draw(t, "host"))
		if err != nil {
			t.Fatal(err)
		}
		id := NodeID{Name: name, Addresses: rapid.SliceOfN(anyAddress(), 1, 3).Draw(t, "addresses")}
		back, err := ParseNodeID(id.String())
		if len(id.String()) > MaxNodeID {
			if fault.Kind(err) != fault.NotFound {
				t.Fatalf("%d bytes parse", len(id.String()))
			}
			return
		}
		if err != nil || back.Name != id.Name || !slices.Equal(back.Addresses, id.Addresses) {
			t.Fatalf("%s parses to %v, %v", id, back, err)
		}
	})
}

func TestNodeNameIsBoundedAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := anyHost().Draw(t, "host")
		name, err := NodeName(host)
		if len(host) > 253 {
			if fault.Kind(err) != fault.Invalid {
				t.Fatalf("%d bytes are taken", len(host))
			}
			return
		}
		if err != nil || len(name) > MaxNodeName || !subdomain.MatchString(name) {
			t.Fatalf("%q becomes %q, %v", host, name, err)
		}
		// The name is derived again on both sides from what the other was given.
		if again, err := NodeName(name); err != nil || again != name {
			t.Fatalf("%q becomes %q, and that %q, %v", host, name, again, err)
		}
	})
}

func TestNodeNames(t *testing.T) {
	long := strings.Repeat("rack-a.", 12) + "example"
	for host, want := range map[string]string{
		"worker-1":              "worker-1",
		"Worker-1.Example":      "worker-1.example",
		strings.Repeat("w", 63): strings.Repeat("w", 63),
		long:                    "rack-a-rack-a-rack-a-rack-a-rack-a-rac.7ef097f9d6b679a73d61bdad",
	} {
		if got, err := NodeName(host); err != nil || got != want {
			t.Errorf("NodeName(%q) is %q, %v; want %q", host, got, err, want)
		}
	}
	for _, host := range []string{"", "a_b", "-a", "a-", "a..b", "a.", ".a", "a b", "a@b", "a/b", "ä", "a\n", strings.Repeat("a", 254)} {
		_, err := NodeName(host)
		if fault.Kind(err) != fault.Invalid {
			t.Errorf("NodeName(%q): %v", host, err)
			continue
		}
		checkMessage(t, err)
	}
}

func FuzzParseNodeID(f *testing.F) {
	for _, a := range badAddresses {
		f.Add("worker-1@" + a)
	}
	f.Add("worker-1@192.0.2.21")
	f.Add("worker-1.example@192.0.2.21,2001:db8::21")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseNodeID(s)
		if err != nil {
			checkMessage(t, err)
			return
		}
		if id.String() != s || len(s) > MaxNodeID || len(id.Addresses) == 0 {
			t.Errorf("%q parses to %q", s, id)
		}
		if strings.Count(s, "@") != 1 || strings.ContainsAny(s, "/%#* \t\n\x00\"'\\=()") || strings.HasPrefix(s, "-") {
			t.Errorf("%q parses", s)
		}
	})
}
