package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/run"
)

// pids reads the process ids that a script wrote, once they are complete.
func pids(t *testing.T, path string) []int {
	t.Helper()
	var list []int
	eventually(t, func() bool {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(raw), "\n") {
			return false
		}
		list = nil
		for _, field := range strings.Fields(string(raw)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, pid)
		}
		return true
	})
	return list
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// endsWith is a context whose end is told in another word.
type endsWith struct {
	context.Context
	err error
}

func (c endsWith) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return c.err
}

func TestDeadlineKillsTheWholeFamily(t *testing.T) {
	t.Parallel()
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			base, end := context.WithCancel(t.Context())
			defer end()
			ctx := endsWith{base, want}
			file := t.TempDir() + "/pids"
			done := make(chan error, 1)
			go func() {
				_, err := quiet().Run(ctx, run.Cmd{Tool: "sh", Args: []string{"testdata/family.sh", file}})
				done <- err
			}()
			family := pids(t, file)
			if len(family) != 3 {
				t.Fatalf("the family has the ids %v", family)
			}
			for _, pid := range family {
				if !alive(pid) {
					t.Fatalf("process %d is gone before its time", pid)
				}
			}
			end()
			err := <-done
			// Nothing may be alive at the very moment that Run returns.
			for _, pid := range family {
				if alive(pid) {
					t.Errorf("process %d outlived the deadline", pid)
				}
			}
			if !errors.Is(err, want) || run.ExitCode(err) != -1 {
				t.Errorf("got %v", err)
			}
			// The child itself must not be left as a zombie of ours.
			if err := syscall.Kill(family[2], 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the child was not reaped: %v", err)
			}
		})
	}
}

func TestADaemonThatIsLeftBehindNeitherHangsNorFailsTheCall(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 3} {
		t.Run("status "+strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			file := t.TempDir() + "/pid"
			out, err := quiet().Run(t.Context(), run.Cmd{Tool: "sh", Args: []string{"testdata/daemon.sh", file, strconv.Itoa(status)}})
			daemon := pids(t, file)[0]
			t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGKILL) })
			if run.ExitCode(err) != status || string(out) != "ready\n" {
				t.Errorf("got %q, %v", out, err)
			}
			if !alive(daemon) {
				t.Error("the daemon was killed without a deadline")
			}
		})
	}
}

func TestADaemonThatIsLeftBehindEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := t.TempDir() + "/pid"
	done := make(chan error, 1)
	go func() {
		_, err := quiet().Run(ctx, run.Cmd{Tool: "sh", Args: []string{"testdata/daemon.sh", file, "0"}})
		done <- err
	}()
	daemon := pids(t, file)[0]
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if alive(daemon) {
		_ = syscall.Kill(daemon, syscall.SIGKILL)
		t.Error("it outlived the deadline")
	}
}

func TestAProcessThatLeftTheGroupDoesNotHoldTheCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := t.TempDir() + "/pid"
	done := make(chan error, 1)
	go func() {
		_, err := quiet().Run(ctx, run.Cmd{Tool: "sh", Args: []string{"-c", `setsid sh -c 'echo $$ >"$0"; exec sleep 600' "$0"`, file}})
		done <- err
	}()
	escaped := pids(t, file)[0]
	t.Cleanup(func() { _ = syscall.Kill(escaped, syscall.SIGKILL) })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestChildrenHaveAGroupOfTheirOwn(t *testing.T) {
	t.Parallel()
	out, err := quiet().Run(t.Context(), run.Cmd{Tool: "cut", Args: []string{"-d", " ", "-f", "1,5", "/proc/self/stat"}})
	if err != nil {
		t.Fatal(err)
	}
	if pid, group, _ := strings.Cut(strings.TrimSpace(string(out)), " "); pid == "" || pid != group {
		t.Errorf("process %q is in group %q", pid, group)
	}
}
