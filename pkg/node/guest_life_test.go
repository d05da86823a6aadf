//go:build guest

package node

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestGuestLifecycle(t *testing.T) {
	g := newGuest(t)
	rounds := []bool{false, true} // with the records at the end, and without
	if testing.Short() {
		rounds = rounds[1:] // the other tests have their records
	}
	g.each(func(v *guestVolume) {
		target := v.target("uid1")
		wantKind(t, v.publish(target, false), fault.Precondition) // C49
		must(t, os.MkdirAll(v.staging, 0o755))
		wantKind(t, v.publish(target, false), fault.Precondition)
		for _, lost := range rounds {
			must(t, v.stage())
			must(t, v.stage())
			for range 3 {
				must(t, v.publish(target, false))
			}
			if n := g.lines(target); n != 1 {
				t.Fatalf("C32: %d mount lines", n)
			}
			must(t, v.use(target, "hello"))
			wantKind(t, v.publish(target, true), fault.Exists, "readonly")
			wantKind(t, v.unstage(), fault.Precondition, target)
			if lost { // C25, C34: nothing but the mount table and the kernel tells
				g.loseState()
				must(t, v.publish(target, false))
				g.loseState()
			}
			must(t, v.unpublish(target))
			must(t, v.unpublish(target))
			if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is left: %v", err)
			}
			if lost && v.cap.Type == access.Block {
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
