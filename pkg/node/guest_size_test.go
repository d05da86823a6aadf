//go:build guest

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/publish"
	"github.com/tarn-csi/tarn/test/machine"
)

func (v *guestVolume) stats(path string) (st Stats, err error) {
	err = v.call(func(ctx context.Context) error {
		st, err = v.g.s.Stats(ctx, v.id, path)
		return err
	})
	return st, err
}

func (v *guestVolume) expand(path string, required int64) (size int64, err error) {
	err = v.call(func(ctx context.Context) error {
		size, err = v.g.s.Expand(ctx, ExpandRequest{VolumeID: v.id, Path: path, RequiredBytes: required})
		return err
	})
	return size, err
}

// grow is what the storage host does when a volume is expanded.
func (v *guestVolume) grow(bytes int64) {
	v.g.t.Helper()
	property := "volsize"
	if v.context.Protocol == publish.NFS {
		property = "refquota"
	}
	machine.Sh(v.g.t, "zfs", "set", fmt.Sprintf("%s=%d", property, bytes), v.dataset)
}

// wantSize fails the test unless a workload is shown that size, less what a
// filesystem needs for itself.
func (v *guestVolume) wantSize(path string, bytes int64) {
	v.g.t.Helper()
	st, err := v.stats(path)
	got := st.Usage.Bytes.Total
	if v.cap.Type == access.Block {
		got = st.SizeBytes
	}
	least := bytes
	if v.context.Protocol == publish.ISCSI && v.cap.Type == access.Mount {
		least = bytes / 100 * 80
	}
	if err != nil || got > bytes || got < least {
		v.g.t.Errorf("%s: %d bytes are shown of %d: %+v, %v", v.cap, got, bytes, st, err)
	}
}

// An expansion is seen and used without a reconnect, while a file is open.
func TestGuestExpand(t *testing.T) {
	g := newGuest(t)
	g.each(func(v *guestVolume) {
		target := v.target("uid1")
		must(t, v.stage())
		must(t, v.publish(target, false))
		must(t, v.use(target, "before"))
		v.grow(guestSize)
		v.wantSize(target, guestSize)

		_, err := v.expand(target, 2*guestSize)
		wantKind(t, err, fault.Range)
		v.grow(2 * guestSize)
		for _, path := range []string{target, target, v.staging} {
			begin := time.Now()
			size, err := v.expand(path, 2*guestSize)
			if err != nil || size != 2*guestSize {
				t.Errorf("%s: %d, %v", v.cap, size, err)
			}
			t.Logf("%s: expanded in %s", v.cap, time.Since(begin).Round(time.Millisecond))
			v.wantSize(path, 2*guestSize)
		}
		must(t, v.use(target, "after"))

		g.loseState()
		v.grow(3 * guestSize)
		if size, err := v.expand(target, 3*guestSize); err != nil || size != 3*guestSize {
			t.Errorf("%s, without records: %d, %v", v.cap, size, err)
		}
		v.wantSize(target, 3*guestSize)
		must(t, v.unpublish(target))
		if v.cap.Type == access.Block {
			must(t, v.stage())
		}
		must(t, v.unstage())
		v.wantGone()
	})
}

// A clone is taken while its source is mounted and written, is larger than it,
// and is mounted beside it, whichever comes first: its log is replayed and it
// fills its disk.
func TestGuestALargerCloneBesideItsSource(t *testing.T) {
	g := newGuest(t)
	for _, c := range clones() {
		a := g.disk(c, "")
		must(t, a.stage())
		must(t, a.publish(a.target("a"), false))
		must(t, a.use(a.target("a"), "from a"))
		machine.Sh(t, "zfs", "snapshot", a.dataset+"@s")
		b := g.disk(c, a.dataset+"@s")
		b.grow(2 * guestSize)
		must(t, b.stage())
		must(t, b.publish(b.target("b"), false))
		b.wantSize(b.target("b"), 2*guestSize)
		a.wantSize(a.target("a"), guestSize)
		if got, err := os.ReadFile(filepath.Join(b.target("b"), "file")); err != nil || string(got) != "from a" {
			t.Errorf("%s: the clone has %q, %v", c.FSType, got, err)
		}
		must(t, b.use(b.target("b"), "from b"))
		must(t, a.use(a.target("a"), "still a"))

		must(t, a.unpublish(a.target("a")))
		must(t, a.unstage())
		must(t, a.stage())
		must(t, a.publish(a.target("a"), false))
		if got, err := os.ReadFile(filepath.Join(a.target("a"), "file")); err != nil || string(got) != "still a" {
			t.Errorf("%s: the source has %q, %v", c.FSType, got, err)
		}
		for pod, v := range map[string]*guestVolume{"a": a, "b": b} {
			must(t, v.unpublish(v.target(pod)))
			must(t, v.unstage())
			v.wantGone()
		}
	}
}

func TestGuestQuestionsToASilentServerEnd(t *testing.T) {
	g := newGuest(t)
	v, other := g.share(), g.disk(ext4(), "")
	must(t, v.stage())
	must(t, other.stage())
	speak := machine.Silence(t, "127.0.0.1")
	for range 2 {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err := g.s.Stats(ctx, v.id, v.staging)
		cancel()
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
		list, err := g.s.VolumeHealth(ctx, HealthRequest{VolumeID: v.id, StagingPath: v.staging})
		cancel()
		if err != nil || !slices.Equal(reasons(list), []string{"inaccessible/ServerNotResponding"}) {
			t.Errorf("health: %+v, %v", list, err)
		}
	}
	list, err := g.s.StorageHealth(t.Context())
	// By then the initiator may have noticed too.
	found := slices.DeleteFunc(reasons(list), func(r string) bool { return r == "inaccessible/PortalUnreachable" })
	if err != nil || !slices.Equal(found, []string{"inaccessible/ServerNotResponding"}) {
		t.Errorf("storage: %+v, %v", list, err)
	}
	if _, err := other.stats(other.staging); err != nil {
		t.Errorf("another volume: %v", err)
	}
	speak()
	machine.Eventually(t, "an answer", func() bool { _, err := v.stats(v.staging); return err == nil })
	v.wantHealth()
	must(t, v.unstage())
	must(t, other.unstage())
	v.wantGone()
	other.wantGone()
}

func (v *guestVolume) health(pod string) []Condition {
	v.g.t.Helper()
	r := HealthRequest{VolumeID: v.id, StagingPath: v.staging}
	if pod != "" {
		r.PublishPath = v.target(pod)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := v.g.s.VolumeHealth(ctx, r)
	must(v.g.t, err)
	return list
}

func (v *guestVolume) wantHealth(want ...string) {
	v.g.t.Helper()
	if list := v.health(""); !slices.Equal(reasons(list), want) {
		v.g.t.Errorf("%s: got %+v, want %q", v.cap, list, want)
	}
}

func TestGuestHealthOfDisks(t *testing.T) {
	g := newGuest(t)
	for _, c := range []access.Capability{ext4(), xfs()} {
		v := g.disk(c, "")
		must(t, v.stage())
		v.wantHealth()
		if c.FSType == "ext4" {
			d, _, err := g.initiator.Find(t.Context(), targetOf(v))
			must(t, err)
			must(t, os.WriteFile("/sys/fs/ext4/"+filepath.Base(d.Path)+"/trigger_fs_error", []byte("test"), 0))
			v.wantHealth("degraded/FilesystemErrors")
			must(t, v.unstage())
			must(t, v.stage()) // which checks it
		} else {
			machine.Sh(t, "xfs_io", "-x", "-c", "shutdown", v.staging)
			v.wantHealth("inaccessible/FilesystemFailed")
			must(t, v.stage())
		}
		v.wantHealth()

		v.open() // no grants: the session ends
		machine.Eventually(t, "the loss of the session", func() bool { return slices.Contains(reasons(v.health("")), "inaccessible/TargetUnreachable") })
		if list, err := g.s.StorageHealth(t.Context()); err != nil || !slices.Equal(reasons(list), []string{"inaccessible/PortalUnreachable"}) {
			t.Errorf("storage: %+v, %v", list, err)
		}
		v.open(v.grant())
		machine.Eventually(t, "the session again", func() bool { return len(v.health("")) == 0 })
		must(t, v.unstage())
		v.wantGone()
	}
}
