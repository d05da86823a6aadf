package run_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/run"
)

// complain is a child that reads all, says something and ends with a status.
func complain(status, text string, secrets ...string) run.Cmd {
	return run.Cmd{Tool: "sh", Args: []string{"-c", `cat >&2; echo "$1" >&2; exit "$0"`, status, text}, Secrets: secrets}
}

func TestPipeCarriesAllBytes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 1 << 16, 8 << 20} {
		in := bytes.Repeat([]byte{'x'}, size)
		out, err := quiet().Pipe(t.Context(), run.Cmd{Tool: "cat", Stdin: in}, run.Cmd{Tool: "cat"})
		if err != nil || !bytes.Equal(in, out) {
			t.Errorf("%d bytes: got %d, %v", size, len(out), err)
		}
	}
}

func TestPipeTellsWhoFailed(t *testing.T) {
	t.Parallel()
	good := run.Cmd{Tool: "cat"}
	for name, c := range map[string]struct {
		from, to         run.Cmd
		fromText, toText string
	}{
		"first":                     {complain("3", "no such snapshot"), good, "no such snapshot", ""},
		"second":                    {good, complain("4", "no such parent"), "", "no such parent"},
		"both":                      {complain("3", "no such snapshot"), complain("4", "incomplete"), "no such snapshot", "incomplete"},
		"second, under the first":   {run.Cmd{Tool: "yes"}, run.Cmd{Tool: "sh", Args: []string{"testdata/complain.sh", "1", "no"}}, "broken pipe", "no"},
		"first is no such tool":     {run.Cmd{Tool: "tarn-no-such-tool"}, run.Cmd{Tool: "sleep", Args: []string{"600"}}, "not found", ""},
		"second is no such tool":    {run.Cmd{Tool: "sleep", Args: []string{"600"}}, run.Cmd{Tool: "tarn-no-such-tool"}, "", "not found"},
		"second ends, and is happy": {run.Cmd{Tool: "yes"}, run.Cmd{Tool: "true"}, "broken pipe", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := quiet().Pipe(t.Context(), c.from, c.to)
			var pair *run.PipeError
			if !errors.As(err, &pair) {
				t.Fatalf("got %v", err)
			}
			for _, side := range []struct {
				err  error
				want string
			}{{pair.From, c.fromText}, {pair.To, c.toText}} {
				switch {
				case (side.err != nil) != (side.want != ""):
					t.Errorf("one side has the error %v, and should have %q", side.err, side.want)
				case side.err != nil && (!strings.Contains(side.err.Error(), side.want) || !strings.Contains(err.Error(), side.want) || !errors.Is(err, side.err)):
					t.Errorf("%v, which should say %q, is not whole in %v", side.err, side.want, err)
				}
			}
			if strings.HasSuffix(name, "no such tool") != errors.Is(err, exec.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The end of the input of a second child must not look like the end of the data.
func TestPipeStartsBothOrTheSecondReadsNothing(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	_, err := quiet().Pipe(t.Context(), run.Cmd{Tool: "tarn-no-such-tool"}, run.Cmd{Tool: "sh", Args: []string{"-c", `cat; echo took the end for the data >"$0"`, mark}})
	if err == nil {
		t.Error("it succeeded")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the second child read an empty input")
	}
	_, err = quiet().Pipe(t.Context(), run.Cmd{Tool: "touch", Args: []string{mark}}, run.Cmd{Tool: "tarn-no-such-tool"})
	if err == nil {
		t.Error("it succeeded")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the first child ran")
	}
}

func TestPipeEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			base, end := context.WithCancel(t.Context())
			defer end()
			dir := t.TempDir()
			files := []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
			done := make(chan error, 1)
			r := quiet()
			go func() {
				_, err := r.Pipe(endsWith{base, want}, run.Cmd{Tool: "sh", Args: []string{"testdata/family.sh", files[0]}}, run.Cmd{Tool: "sh", Args: []string{"testdata/family.sh", files[1]}})
				done <- err
			}()
			family := append(pids(t, files[0]), pids(t, files[1])...)
			if live := r.Live(); len(live) != 2 {
				t.Errorf("the list has %v", live)
			}
			end()
			err := <-done
			for _, pid := range family {
				if alive(pid) {
					t.Errorf("process %d outlived the deadline", pid)
				}
			}
			var pair *run.PipeError
			if !errors.As(err, &pair) || !errors.Is(pair.From, want) || !errors.Is(pair.To, want) || run.ExitCode(pair.From) != -1 {
				t.Errorf("got %v", err)
			}
			if live := r.Live(); len(live) != 0 {
				t.Errorf("left in the list: %v", live)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	mark := filepath.Join(t.TempDir(), "mark")
	touch := run.Cmd{Tool: "touch", Args: []string{mark}}
	if _, err := quiet().Pipe(ended, touch, touch); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a child ran after the deadline")
	}
}

func TestPipeMasksSecretsOfBoth(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	log := logrus.New()
	log.SetOutput(&logged)
	log.SetLevel(logrus.TraceLevel)
	_, err := run.New(log).Pipe(t.Context(), complain("1", "first "+sentinel, sentinel), complain("1", "second "+sentinel, sentinel))
	seen := logged.String() + deep(err)
	if err == nil || strings.Contains(seen, sentinel) || !strings.Contains(seen, "first [masked]") || !strings.Contains(seen, "second [masked]") {
		t.Errorf("got %s", seen)
	}
}

func TestManyPipesAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if out, err := quiet().Pipe(t.Context(), run.Cmd{Tool: "echo", Args: []string{"x"}}, run.Cmd{Tool: "cat"}); err != nil || string(out) != "x\n" {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
	all.Wait()
}
