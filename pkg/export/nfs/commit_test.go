package nfs_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/export/nfs/fake"
	"github.com/tarn-csi/tarn/pkg/run"
)

// gated is a fake host whose exportfs waits for a token, and which says how many
// ran.
type gated struct {
	*fake.Host
	tokens  chan struct{}
	started atomic.Int32
	longest atomic.Int32 // of the commands, in words
}

func (g *gated) Run(ctx context.Context, c run.Cmd) ([]byte, error) {
	g.longest.Store(max(g.longest.Load(), int32(len(c.Args)))) // there is one at a time
	g.started.Add(1)
	<-g.tokens
	return g.Host.Run(ctx, c)
}

func newGated(t *testing.T) (*gated, *nfs.Exporter) {
	t.Helper()
	h, err := fake.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{Host: h, tokens: make(chan struct{}, 100)}
	return g, nfs.New(g, h.Paths(), "tarn.example", logrus.New())
}

func numbered(i int, readOnly bool) export.Volume {
	return export.Volume{
		ID: fmt.Sprint("pool/", i), UUID: fmt.Sprintf("%032x", i), Source: fmt.Sprintf("/tank/csi/%d", i),
		Grants: []export.Grant{{Node: "n", ReadOnly: readOnly, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
	}
}

// Those who come while an exportfs runs share the next one, with the same options or
// others, and with few words.
func TestVolumesShareAnExportfs(t *testing.T) {
	t.Run("fifty", func(t *testing.T) { testShared(t, 50, func(i int) bool { return i%2 == 0 }) })
	t.Run("alike", func(t *testing.T) { testShared(t, 50, func(int) bool { return false }) })
	t.Run("a thousand", func(t *testing.T) { testShared(t, 1000, func(int) bool { return false }) })
}

func testShared(t *testing.T, volumes int, readOnly func(i int) bool) {
	g, e := newGated(t)
	// together has one begin, and the others once it runs; written says how many of
	// them have come to their files.
	together := func(do func(v export.Volume) error, written func() int) {
		t.Helper()
		var wg sync.WaitGroup
		before := g.started.Load()
		for i := range volumes {
			v := numbered(i, i > 0 && readOnly(i))
			wg.Go(func() {
				if err := do(v); err != nil {
					t.Errorf("%s: %v", v.ID, err)
				}
			})
			if i == 0 {
				waitFor(t, func() bool { return g.started.Load() > before })
			}
		}
		waitFor(t, func() bool { return written() == volumes })
		time.Sleep(50 * time.Millisecond) // the last one's way from its file to the queue
		for range cap(g.tokens) {
			g.tokens <- struct{}{}
		}
		wg.Wait()
		if n := g.started.Load() - before; n > 5 {
			t.Errorf("%d volumes took %d children", volumes, n)
		}
		for len(g.tokens) > 0 {
			<-g.tokens
		}
		if n := g.longest.Load(); n > 100 {
			t.Errorf("an exportfs of %d words", n)
		}
	}
	list := func() []export.Status {
		t.Helper()
		list, err := e.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	together(func(v export.Volume) error { return e.Ensure(t.Context(), v) }, func() int { return len(list()) })
	for _, st := range list() {
		if !st.Complete || len(st.Clients) != 1 {
			t.Errorf("%v", st)
		}
	}
	together(func(v export.Volume) error { return e.Remove(t.Context(), v.UUID) }, func() int {
		closing := 0
		for _, st := range list() {
			if !st.Complete || len(st.Clients) == 0 {
				closing++ // it wants no client any more
			}
		}
		return closing
	})
	if left := list(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for i := range volumes {
		if grants := g.Grants(numbered(i, false).Source); len(grants) > 0 {
			t.Errorf("volume %d is still open: %v", i, grants)
		}
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// A caller that leaves takes its job along, or waits until it is done.
func TestCallerThatLeaves(t *testing.T) {
	g, e := newGated(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Ensure(t.Context(), numbered(0, false)); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, func() bool { return g.started.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := e.Ensure(ctx, numbered(1, false)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller whose time was up got %v", err)
	}
	g.tokens <- struct{}{}
	wg.Wait()
	if len(g.Grants("/tank/csi/1")) != 0 {
		t.Error("a job was done whose caller had left")
	}

	ctx, cancel = context.WithCancel(t.Context())
	var ended atomic.Bool
	wg.Go(func() {
		_ = e.Ensure(ctx, numbered(2, false))
		ended.Store(true)
	})
	waitFor(t, func() bool { return g.started.Load() == 2 })
	cancel()
	time.Sleep(20 * time.Millisecond)
	if ended.Load() {
		t.Error("a caller left while its exportfs ran")
	}
	g.tokens <- struct{}{}
	wg.Wait()
}

// Never two flushes in one second of the kernel's clock.
func TestOneExportfsASecond(t *testing.T) {
	h, err := fake.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	flush := filepath.Join(h.Paths().Proc, "net/rpc/nfsd.export/flush")
	if err := os.MkdirAll(filepath.Dir(flush), 0o755); err != nil {
		t.Fatal(err)
	}
	var seconds []int64
	e := nfs.New(runner(func(ctx context.Context, c run.Cmd) ([]byte, error) {
		now := time.Now().Unix()
		seconds = append(seconds, now)
		if err := os.WriteFile(flush, []byte(strconv.FormatInt(now, 10)+"\n"), 0o644); err != nil {
			t.Error(err)
		}
		return h.Run(ctx, c)
	}), h.Paths(), "tarn.example", logrus.New())
	for i := range 3 {
		if err := e.Ensure(t.Context(), numbered(i, false)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < len(seconds); i++ {
		if seconds[i] <= seconds[i-1] {
			t.Errorf("exportfs ran at %v", seconds)
		}
	}
	// Somebody else's flushes have pushed the clock ahead: no use in waiting for it.
	if err := os.WriteFile(flush, []byte(strconv.FormatInt(time.Now().Unix()+100, 10)), 0o644); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := e.Ensure(t.Context(), numbered(9, false)); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

type runner func(context.Context, run.Cmd) ([]byte, error)

func (r runner) Run(ctx context.Context, c run.Cmd) ([]byte, error) { return r(ctx, c) }
