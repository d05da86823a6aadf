package ident

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/fault"
)

const (
	prefix = "iqn.2026-01.io.github.tarn-csi"
	uuid   = "0123456789abcdef0123456789abcdef"
)

func naming(t testing.TB, prefix, instance string) Naming {
	t.Helper()
	n, err := NewNaming(prefix, instance)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestC05IQNsAreLowerCaseHoweverTheyAreConfigured(t *testing.T) {
	n := naming(t, "iqn.2003-01.org.example:K8S", "Main")
	if got, want := n.Target(uuid), "iqn.2003-01.org.example:k8s:main:"+uuid; got != want {
		t.Errorf("target is %s, want %s", got, want)
	}
	if got, want := n.Initiator("worker-1"), "iqn.2003-01.org.example:k8s:main:node:worker-1"; got != want {
		t.Errorf("initiator is %s, want %s", got, want)
	}
	if n != naming(t, "iqn.2003-01.org.example:k8s", "main") {
		t.Error("the same names in lower case make another naming")
	}
	if got, ok := n.UUID(n.Target(uuid)); !ok || got != uuid {
		t.Errorf("the target's uuid is %q, %t", got, ok)
	}
}

func TestC04EveryIQNFitsOrIsRefusedAtStart(t *testing.T) {
	node := strings.Repeat("w", MaxNodeName)
	for size := 1; size < 250; size++ {
		n, err := NewNaming(prefix, strings.Repeat("i", size))
		if err != nil {
			if fault.Kind(err) != fault.Invalid || len(prefix)+1+size <= maxBase {
				t.Errorf("an instance of %d bytes: %v", size, err)
			}
			continue
		}
		if len(n.Target(uuid)) > MaxIQN || len(n.Initiator(node)) > MaxIQN {
			t.Errorf("an instance of %d bytes makes names of %d and %d", size, len(n.Target(uuid)), len(n.Initiator(node)))
		}
	}
}

func TestNamingsThatAreRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"", "main"}, {"eui.02004567A425678D", "main"}, {"iqn.2026.example", "main"}, {"iqn.2026-01.", "main"}, {"iqn.2026-01.-a", "main"},
		{"iqn.2026-01.a/../b", "main"}, {"iqn.2026-01.a b", "main"}, {"iqn.2026-01.a\n", "main"}, {"iqn.2026-01.a:", "main"}, {"iqn.2026-01.a_b", "main"},
		{prefix, ""}, {prefix, "a:b"}, {prefix, "a/b"}, {prefix, "../a"}, {prefix, "-a"}, {prefix, "a b"}, {prefix, "a\n"}, {prefix, "ä"},
	} {
		if _, err := NewNaming(c[0], c[1]); fault.Kind(err) != fault.Invalid {
			t.Errorf("%q, %q: %v", c[0], c[1], err)
		}
	}
}

func TestInstancesNeverTakeEachOthersTargets(t *testing.T) {
	instance := rapid.OneOf(rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,6}[a-z0-9])?`), rapid.SampledFrom([]string{"node", uuid}))
	parent := rapid.SampledFrom([]string{prefix, prefix + ":a", prefix + ":a:b", prefix + ":node", prefix + ":" + uuid})
	rapid.Check(t, func(t *rapid.T) {
		p, q := parent.Draw(t, "p"), parent.Draw(t, "q")
		i, j := instance.Draw(t, "i"), instance.Draw(t, "j")
		a, err := NewNaming(p, i)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewNaming(q, j)
		if err != nil {
			t.Fatal(err)
		}
		if p == q && i == j {
			return
		}
		if _, ours := a.UUID(b.Target(uuid)); ours || a.Instance() == b.Instance() {
			t.Fatalf("%s takes %s for its own", a.Instance(), b.Target(uuid))
		}
	})
}

func TestForeignIQNsHaveNoUUID(t *testing.T) {
	n := naming(t, prefix, "main")
	for _, s := range []string{"", prefix, n.Instance(), n.Instance() + ":", n.Instance() + ":" + uuid[1:], n.Initiator("worker-1"),
		strings.ToUpper(n.Target(uuid)), n.Target(uuid) + "\n", n.Target(uuid) + ":x", n.Target("../" + uuid[3:])} {
		if got, ok := n.UUID(s); ok || got != "" {
			t.Errorf("%q has uuid %q", s, got)
		}
	}
}
