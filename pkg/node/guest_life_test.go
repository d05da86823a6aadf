//go:build guest

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/test/machine"
)

func TestGuestLifecycle(t *testing.T) {
	g := newGuest(t)
	g.each(func(v *guestVolume) {
		target := v.target("uid1")
		wantKind(t, v.publish(target, false), fault.Precondition) // C49
		must(t, os.MkdirAll(v.staging, 0o755))
		wantKind(t, v.publish(target, false), fault.Precondition)
		for round := range 2 {
			must(t, v.stage())
			must(t, v.stage())
			for range 5 {
				must(t, v.publish(target, false))
			}
			if n := g.lines(target); n != 1 {
				t.Fatalf("C32: %d mount lines", n)
			}
			must(t, v.use(target, "hello"))
			wantKind(t, v.publish(target, true), fault.Exists, "readonly")
			wantKind(t, v.unstage(), fault.Precondition, target)
			if round == 1 { // C25, C34: nothing but the mount table and the kernel tells
				g.loseState()
				must(t, v.publish(target, false))
				g.loseState()
			}
			must(t, v.unpublish(target))
			must(t, v.unpublish(target))
			if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is left: %v", err)
			}
			if round == 1 && v.cap.Type == access.Block {
				must(t, v.stage()) // nothing is mounted that tells of a block volume
			}
			must(t, v.unstage())
			v.wantGone()
		}
	})
}

func TestGuestReadOnly(t *testing.T) {
	g := newGuest(t)
	g.each(func(v *guestVolume) {
		target := v.target("uid1")
		must(t, v.stage())
		must(t, v.publish(target, true))
		err := v.use(target, "hello")
		if !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("writing through a read-only publication: %v", err)
		}
		must(t, v.unpublish(target))
		must(t, v.publish(target, false))
		must(t, v.use(target, "hello"))
		must(t, v.unpublish(target))
		must(t, v.unstage())
		v.wantGone()
	})
}

func TestGuestC40CloneBesideItsSource(t *testing.T) {
	g := newGuest(t)
	for _, c := range clones() {
		a := g.disk(c, "")
		must(t, a.stage())
		must(t, a.publish(a.target("a"), false))
		must(t, a.use(a.target("a"), "from a"))
		machine.Sh(t, "sync", "-f", a.target("a"))
		machine.Sh(t, "zfs", "snapshot", a.dataset+"@s")
		b := g.disk(c, a.dataset+"@s")
		must(t, b.stage())
		must(t, b.publish(b.target("b"), false))
		if got, err := os.ReadFile(filepath.Join(b.target("b"), "file")); err != nil || string(got) != "from a" {
			t.Errorf("%s: the clone has %q, %v", c.FSType, got, err)
		}
		must(t, b.use(b.target("b"), "from b"))
		// The other order.
		must(t, a.unpublish(a.target("a")))
		must(t, a.unstage())
		must(t, a.stage())
		must(t, a.publish(a.target("a"), false))
		if got, err := os.ReadFile(filepath.Join(a.target("a"), "file")); err != nil || string(got) != "from a" {
			t.Errorf("%s: the source has %q, %v", c.FSType, got, err)
		}
		for _, v := range []*guestVolume{a, b} {
			must(t, v.unpublish(v.target(v.pod(a))))
			must(t, v.unstage())
			v.wantGone()
		}
	}
}

func (v *guestVolume) pod(a *guestVolume) string {
	if v == a {
		return "a"
	}
	return "b"
}

func TestGuestC52TwoStagingPaths(t *testing.T) {
	g := newGuest(t)
	g.each(func(v *guestVolume) {
		first, target := v.staging, v.target("uid1")
		must(t, v.stage())
		must(t, v.publish(target, false))
		v.staging = filepath.Join(g.dir, "hash", filepath.Base(v.dataset))
		must(t, v.stage())
		must(t, v.publish(target, false))
		must(t, v.call(func(ctx context.Context) error { return g.s.Unstage(ctx, v.id, first) }))
		must(t, v.use(target, "goes on"))
		must(t, v.unpublish(target))
		must(t, v.publish(target, false))
		must(t, v.use(target, "goes on"))
		must(t, v.unpublish(target))
		must(t, v.unstage())
		v.wantGone()
	})
}
