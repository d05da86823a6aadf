package node

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

func (e *env) stats(volumeID, path string) (st Stats, err error) {
	err = e.call(func(ctx context.Context) error {
		st, err = e.s.Stats(ctx, volumeID, path)
		return err
	})
	return st, err
}

func TestStats(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/p1/vol")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		want := Stats{Usage: Usage{Bytes: Amount{Total: 100 * mib, Available: 100 * mib}}}
		if v.isBlock() {
			want = Stats{Block: true, SizeBytes: 100 * mib}
		}
		for _, path := range []string{v.staging, target} {
			if got, err := e.stats(v.id, path); err != nil || got != want {
				t.Errorf("%s: %+v, %v", path, got, err)
			}
		}
		e.loseState()
		if got, err := e.stats(v.id, target); err != nil || got != want {
			t.Errorf("without a record: %+v, %v", got, err)
		}
		must(t, e.publish(v.publishRequest(target)))
		must(t, e.unpublish(v, target))
		if _, err := e.stats(v.id, target); !errors.Is(err, fault.NotFound) {
			t.Errorf("after the unpublish: %v", err)
		}
	})
}

func TestStatsNeedsItsArguments(t *testing.T) {
	e := newEnv(t)
	for _, args := range [][2]string{{"", "/a"}, {"tank/a", ""}, {"../a", ""}} {
		if _, err := e.stats(args[0], args[1]); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestStatsOfAServerThatDoesNotAnswerEndsAtTheDeadline(t *testing.T) {
	e := newEnv(t)
	v, other := e.nfs("pvc-1"), e.disk("pvc-2", ext4())
	must(t, e.stage(v.stageRequest()))
	must(t, e.stage(other.stageRequest()))
	v.export.hang = true
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := e.s.Stats(ctx, v.id, v.staging); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	// It holds no lock, and nobody else up.
	if _, err := e.stats(other.id, other.staging); err != nil {
		t.Error(err)
	}
	must(t, e.unstage(v, v.staging))
}

// stuckHost is a node where questions do not end with their context.
type stuckHost struct {
	fakeHost
	release chan struct{}
}

func (h stuckHost) Usage(ctx context.Context, path string) (Usage, error) {
	<-h.release
	return Usage{}, ctx.Err()
}

func TestStatsThatCannotBeEndedAreCapped(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, e.stage(v.stageRequest()))
	h := stuckHost{fakeHost{e.kernel}, make(chan struct{})}
	e.s.Host = h
	capped := 0
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := e.s.Stats(ctx, v.id, v.staging)
		cancel()
		switch {
		case errors.Is(err, fault.Unavailable):
			capped++
		case !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("got %v", err)
		}
	}
	if capped == 0 || capped == 20 {
		t.Errorf("%d of 20 were refused", capped)
	}
	must(t, e.unstage(v, v.staging)) // it is not held up by questions
	close(h.release)
	must(t, e.s.Operations.Drain(t.Context()))
}

// hostThat does something just before the filesystem is asked.
type hostThat struct {
	fakeHost
	does func(path string)
}

func (h hostThat) Usage(ctx context.Context, path string) (Usage, error) {
	h.mu.Lock()
	h.does(path)
	h.mu.Unlock()
	return h.fakeHost.Usage(ctx, path)
}

func TestStatsOfAMountThatGoesAwayIsNotAnothers(t *testing.T) {
	e := newEnv(t)
	v, other := e.nfs("pvc-1"), e.nfs("pvc-2")
	must(t, e.stage(other.stageRequest()))
	for name, does := range map[string]func(path string){
		"the root disk": e.remove,
		"another volume": func(path string) {
			i, _ := e.top(other.staging)
			i.Target = path
			e.add(i, false)
		},
	} {
		must(t, e.stage(v.stageRequest()))
		e.s.Host = hostThat{fakeHost{e.kernel}, does}
		if got, err := e.stats(v.id, v.staging); !errors.Is(err, fault.NotFound) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		e.s.Host = fakeHost{e.kernel}
		e.remove(v.staging)
	}
}

func TestStatsOfAFilesystemThatIsDead(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", xfs())
	must(t, e.stage(v.stageRequest()))
	e.emergency(v.staging)
	_, err := e.stats(v.id, v.staging)
	wantKind(t, err, fault.Unavailable)
}

func TestParseUsage(t *testing.T) {
	for text, want := range map[string]Usage{
		"4096 1000 600 500 64 60\n": {Amount{4096000, 400 * 4096, 500 * 4096}, Amount{64, 4, 60}},
		"4096 10 10 10 0 0\n":       {Amount{40960, 0, 40960}, Amount{}},
		// No limit of inodes, and more free than there are.
		"1 2 3 4 18446744073709551615 18446744073709551615\n": {Amount{2, 0, 4}, Amount{math.MaxInt64, 0, math.MaxInt64}},
		"1048576 9223372036854775807 0 0 1 1\n":               {Amount{math.MaxInt64, math.MaxInt64, 0}, Amount{1, 0, 1}},
	} {
		if got, err := parseUsage(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1 2 3", "1 2 3 4 5 -6", "1 2 3 4 5 6 7", "a b c d e f"} {
		if got, err := parseUsage(text); !errors.Is(err, fault.Unavailable) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestUsageIsWhatStatfsSays(t *testing.T) {
	tools := NewTools(run.New(logrus.New()))
	dir := t.TempDir()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	got, err := tools.Usage(t.Context(), dir)
	if err != nil || got.Bytes.Total != int64(st.Blocks)*st.Frsize || got.Inodes.Total != int64(st.Files) {
		t.Errorf("%+v, %v, statfs says %+v", got, err, st)
	}
	gone := filepath.Join(dir, "gone")
	if _, err := tools.Usage(t.Context(), gone); !errors.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tools.Usage(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
