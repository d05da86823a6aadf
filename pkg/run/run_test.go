package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/tarn-csi/tarn/pkg/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *run.Runner {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return run.New(log)
}

func TestStdinAndStdoutAreWholeWhateverTheirSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 1 << 16, 8 << 20} {
		in := bytes.Repeat([]byte{'x'}, size)
		out, err := quiet().Run(t.Context(), run.Cmd{Tool: "cat", Stdin: in})
		if err != nil || !bytes.Equal(in, out) {
			t.Errorf("%d bytes: got %d, %v", size, len(out), err)
		}
	}
	// Without Stdin a child reads the null device and not our terminal.
	if out, err := quiet().Run(t.Context(), run.Cmd{Tool: "cat"}); err != nil || len(out) > 0 {
		t.Errorf("no stdin: %q, %v", out, err)
	}
}

func TestArgumentsAreNeverAShellLine(t *testing.T) {
	t.Parallel()
	out, err := quiet().Run(t.Context(), run.Cmd{Tool: "printf", Args: []string{"%s|", "a b", "$(id)", "; exit 1", "*", "-n", ""}})
	if want := "a b|$(id)|; exit 1|*|-n||"; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}

func TestFailureKeepsStatusAndComplaint(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"1", "2", "24", "255"} {
		_, err := quiet().Run(t.Context(), run.Cmd{Tool: "sh", Args: []string{"testdata/complain.sh", status, " no such thing "}})
		var e *run.Error
		if !errors.As(err, &e) || e.Stderr != "no such thing" || run.Stderr(err) != e.Stderr || run.ExitCode(err) != e.Code {
			t.Errorf("status %s: %#v", status, err)
			continue
		}
		want := "sh testdata/complain.sh " + status + "  no such thing : exit status " + status + ": no such thing"
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	_, failed := quiet().Run(t.Context(), run.Cmd{Tool: "sh", Args: []string{"testdata/complain.sh", "7", "x"}})
	_, killed := quiet().Run(t.Context(), run.Cmd{Tool: "sh", Args: []string{"-c", "kill -KILL $$"}})
	_, missing := quiet().Run(t.Context(), run.Cmd{Tool: "tarn-no-such-tool", Args: []string{"-x"}})
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"none": {nil, 0}, "failed": {failed, 7}, "killed": {killed, -1}, "missing": {missing, -1}, "another": {io.EOF, -1},
		"wrapped": {errors.Join(io.EOF, failed), 7},
	} {
		if got := run.ExitCode(c.err); got != c.want {
			t.Errorf("%s: %d, want %d (%v)", name, got, c.want, c.err)
		}
	}
	if !errors.Is(missing, exec.ErrNotFound) || !strings.HasPrefix(missing.Error(), "tarn-no-such-tool -x: ") {
		t.Errorf("a missing tool: %v", missing)
	}
	if run.Stderr(nil) != "" || run.Stderr(io.EOF) != "" {
		t.Error("an error of another kind has a complaint")
	}
}

func TestNothingStartsWhenTheDeadlineHasPassed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mark := t.TempDir() + "/mark"
	var logged bytes.Buffer
	log := logrus.New()
	log.SetOutput(&logged)
	log.SetLevel(logrus.TraceLevel)
	_, err := run.New(log).Run(ctx, run.Cmd{Tool: "touch", Args: []string{mark}})
	if !errors.Is(err, context.Canceled) || run.ExitCode(err) != -1 {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the child ran")
	}
	if logged.Len() > 0 {
		t.Errorf("the log speaks of a start: %s", logged.String())
	}
}

func TestExtraFilesBeginAtThree(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = quiet().Run(t.Context(), run.Cmd{Tool: "sh", Args: []string{"-c", "echo here >&3"}, ExtraFiles: []*os.File{w}})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "here\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestChildrenSpeakTheCLocale(t *testing.T) {
	for _, kv := range []string{"LANG=de_DE.UTF-8", "LANGUAGE=de", "LC_ALL=de_DE.UTF-8", "LC_MESSAGES=de_DE.UTF-8", "TARN_TEST=kept"} {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	out, err := quiet().Run(t.Context(), run.Cmd{Tool: "env"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "LANG") || strings.HasPrefix(line, "LC_") || strings.HasPrefix(line, "TARN_TEST=") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff([]string{"TARN_TEST=kept", "LC_ALL=C"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLiveShowsWhatRunsAndSinceWhen(t *testing.T) {
	t.Parallel()
	r := quiet()
	before := time.Now()
	var stop []context.CancelFunc
	var ended sync.WaitGroup
	for _, seconds := range []string{"601", "602"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop = append(stop, cancel)
		ended.Go(func() {
			if _, err := r.Run(ctx, run.Cmd{Tool: "sleep", Args: []string{seconds}}); !errors.Is(err, context.Canceled) {
				t.Errorf("sleep %s: %v", seconds, err)
			}
		})
		eventually(t, func() bool { return len(r.Live()) == len(stop) })
	}
	live := r.Live()
	for i, line := range []string{"sleep 601", "sleep 602"} {
		c := live[i]
		if c.Line != line || c.Tool != "sleep" || c.Verb != strings.Fields(line)[1] || c.Since.Before(before) || c.Since.After(time.Now()) {
			t.Errorf("entry %d is %+v", i, c)
		}
	}
	stop[0]()
	eventually(t, func() bool { return len(r.Live()) == 1 })
	if got := r.Live()[0].Line; got != "sleep 602" {
		t.Errorf("%q is left", got)
	}
	stop[1]()
	ended.Wait()
	if live := r.Live(); len(live) != 0 {
		t.Errorf("after the end: %v", live)
	}
}

func TestTrackListsWhatSomethingElseStarts(t *testing.T) {
	t.Parallel()
	r := quiet()
	end := r.Track(t.Context(), "zfs", "get", "zfs get all")
	if live := r.Live(); len(live) != 1 || live[0].Verb != "get" {
		t.Errorf("got %v", live)
	}
	end(io.EOF)
	if live := r.Live(); len(live) != 0 {
		t.Errorf("after the end: %v", live)
	}
}

func TestObserversHearOfEveryEnd(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "caller")
	var heard []string
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := run.New(log, func(ctx context.Context, c run.Child, err error) {
		heard = append(heard, fmt.Sprint(ctx.Value(key{}), "|", c.Line, "|", run.ExitCode(err), "|", time.Since(c.Since) < time.Minute))
	})
	_, _ = r.Run(ctx, run.Cmd{Tool: "true", Args: []string{"--password", "hidden"}, Secrets: []string{"hidden"}})
	_, _ = r.Run(ctx, run.Cmd{Tool: "sh", Args: []string{"-c", "exit 7"}})
	_, _ = r.Run(ctx, run.Cmd{Tool: "tarn-no-such-tool"})
	r.Track(ctx, "zfs", "destroy", "zfs destroy tank/a")(nil)
	want := []string{
		"caller|true --password [masked]|0|true", "caller|sh -c exit 7|7|true", "caller|tarn-no-such-tool |-1|true", "caller|zfs destroy tank/a|0|true",
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard\n%q, want\n%q", heard, want)
	}
}

func TestManyChildrenAtOnce(t *testing.T) {
	t.Parallel()
	r := quiet()
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if out, err := r.Run(t.Context(), run.Cmd{Tool: "echo", Args: []string{"x"}}); err != nil || string(out) != "x\n" {
				t.Errorf("got %q, %v", out, err)
			}
			_ = r.Live()
		})
	}
	all.Wait()
	if live := r.Live(); len(live) != 0 {
		t.Errorf("left in the list: %v", live)
	}
}

// eventually polls until ok holds.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come true in 20 s")
		}
		time.Sleep(pause)
	}
}
