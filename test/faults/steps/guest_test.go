//go:build guest && long

package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/tarn-csi/tarn/test/faults/storm"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/machine"
)

// real is a World of real ZFS, NFS and iSCSI, with the daemon as a process that
// really is killed.
type real struct {
	pool   harness.Pool
	daemon *harness.Daemon
	dir    string // of the plan
	plans  int
	what   string
	at     int
}

func newReal(t *testing.T) *real {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "steps-") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	w := &real{pool: harness.Pool{Name: "steps", Dir: dir}, dir: filepath.Join(dir, "plan.d")}
	if err := errors.Join(os.Mkdir(w.dir, 0o700), w.pool.Up(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.daemon = &harness.Daemon{
		Dir: dir, Pool: pool + "=" + w.pool.Parent(), Binary: filepath.Join(root, "bin", "tarn-faults"),
		Env: []string{"TARN_FAULTS=" + w.dir}, Args: []string{"--reconcile-interval", "12h"},
	}
	if err := w.daemon.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, w.daemon.Log())
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := w.daemon.Log()
			t.Logf("the end of the daemon's log:\n%s", log[max(0, len(log)-8000):])
		}
		w.daemon.Kill()
		if err := errors.Join(w.pool.Down(context.Background()), harness.RemoveDir(dir)); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *real) Conn() *grpc.ClientConn { return w.daemon.Conn() }
func (w *real) NodeID() string         { return "node-1@" + harness.Address }
func (w *real) Dir() string            { return filepath.Join(w.daemon.Dir, "pods") }

func (w *real) Plan(what string, at int) error {
	w.plans++
	w.what, w.at = what, at
	if err := os.WriteFile(filepath.Join(w.dir, "log"), nil, 0o600); err != nil {
		return err
	}
	next := filepath.Join(w.dir, "next")
	text := fmt.Sprintf("%d %s %d\n", w.plans, what, at)
	return errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, filepath.Join(w.dir, "plan")))
}

func (w *real) steps() []string {
	raw, err := os.ReadFile(filepath.Join(w.dir, "log"))
	if err != nil {
		return nil
	}
	var list []string
	for line := range strings.Lines(string(raw)) {
		list = append(list, Plain(strings.TrimSpace(line)))
	}
	return list
}

func (w *real) Hit() bool { return w.at > 0 && len(w.steps()) >= w.at }

func (w *real) End(ctx context.Context) (Outcome, error) {
	o := Outcome{Steps: w.steps(), Hit: w.Hit()}
	killed := o.Hit && (w.what == KillBefore || w.what == KillAfter)
	if killed && !w.ended() {
		return o, errors.New("the daemon goes on")
	}
	if err := os.Remove(filepath.Join(w.dir, "plan")); err != nil {
		return o, err
	}
	if !killed {
		return o, nil
	}
	w.daemon.Kill() // only waits for it
	return o, w.daemon.Start(ctx)
}

// ended waits for the end of the daemon.
func (w *real) ended() bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if errors.Is(unix.Kill(w.daemon.PID(), 0), unix.ESRCH) {
			return true
		}
	}
	return false
}

func (w *real) Reconcile(ctx context.Context) error {
	return errors.Join(w.daemon.Stop(ctx), w.daemon.Start(ctx))
}

// What is another one in each life of a real host: the names of disks and
// sessions, and a snapshot's guid.
var lives = regexp.MustCompile(`\bsd[a-z]+\b|\bsession[0-9]+|"guid":"[0-9]+"`)

func (w *real) State() ([]string, error) {
	list, err := harness.State(w.pool, w.daemon.Dir)
	if err != nil {
		return nil, err
	}
	out, err := machine.Output("zfs", "get", "-H", "-o", "name,property,value", "-s", "local,received", "-t", "filesystem,volume,snapshot", "-r", "all", w.pool.Parent())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, "\t")
		below := strings.TrimPrefix(strings.TrimPrefix(name, w.pool.Parent()), "/")
		if below != "" && !harness.Container(below) {
			list = append(list, strings.ReplaceAll(strings.TrimSpace(line), "\t", " "))
		}
	}
	for _, dir := range []string{"/sys/kernel/config/target/iscsi", "/sys/kernel/config/target/core", "/etc/exports.d", w.Dir(), filepath.Join(w.daemon.Dir, "state")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "statistics" || d.Name() == "staging" || d.Name() == "target" && strings.HasPrefix(path, w.Dir())):
				return fs.SkipDir
			}
			if strings.HasPrefix(path, "/sys/") == (d.IsDir() || d.Type()&fs.ModeSymlink != 0) {
				list = append(list, "path "+path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for k := range list {
		list[k] = lives.ReplaceAllString(Plain(list[k]), "OTHER")
	}
	slices.Sort(list)
	return list, nil
}

// fileIn is the workload's file, or the device itself.
func fileIn(path string, block bool) string {
	if block {
		return path
	}
	return filepath.Join(path, "data")
}

func (w *real) Write(path string, block bool, data []byte) error {
	flags := os.O_WRONLY
	if !block {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(fileIn(path, block), flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func (w *real) Read(path string, block bool, size int) ([]byte, error) {
	f, err := os.Open(fileIn(path, block))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, size)
	n, err := f.Read(data)
	return data[:n], err
}

func (w *real) tour(t *testing.T, u Use, disturb func(string) (string, int), reference *Report) Report {
	t.Helper()
	start := time.Now()
	r, err := Tour{
		World: w, Use: u, Disturb: disturb, Brief: testing.Short(), HangFor: 2 * time.Second, Patience: 3 * time.Minute, Say: t.Logf,
	}.Run(t.Context(), reference)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: a tour with %d disturbances took %s", u.Name, r.Hits, time.Since(start).Round(time.Second))
	return r
}

func undisturbed(string) (string, int) { return Count, 0 }

// Each call of a life is disturbed on a real kernel: each at a step or none, by
// chance, where the tests are to be short; else at each step in each way.
func TestEachStepInGuest(t *testing.T) {
	seed, err := storm.Seed()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range Uses {
		if testing.Short() && u.NodeOnly {
			continue // the short sample is of both protocols
		}
		t.Run(u.Name, func(t *testing.T) {
			w := newReal(t)
			w.tour(t, u, undisturbed, nil) // makes what is made once in a pool
			reference := w.tour(t, u, undisturbed, nil)
			counted := counts{}
			counted.add(u, reference)
			counted.compare(t, "testdata/guest.txt", false)
			if testing.Short() {
				t.Logf("repeat with TARN_SEED=%d", seed)
				w.tour(t, u, sample(rand.New(rand.NewPCG(seed, 0)), reference.Steps), &reference)
				return
			}
			most := 0 // steps of a call
			for _, steps := range reference.Steps {
				most = max(most, len(steps))
			}
			for _, what := range []string{KillBefore, KillAfter, Fail, Hang} {
				for k := 1; k <= most; k++ {
					w.tour(t, u, func(call string) (string, int) {
						if k > len(reference.Steps[call]) {
							return Count, 0
						}
						return what, k
					}, &reference)
				}
			}
		})
	}
}

// sample disturbs two calls in five, each at one step, most of them by a kill.
func sample(by *rand.Rand, steps map[string][]string) func(string) (string, int) {
	return func(call string) (string, int) {
		n := len(steps[call])
		if n == 0 || by.IntN(5) > 1 {
			return Count, 0
		}
		return []string{KillBefore, KillAfter, KillBefore, KillAfter, Fail}[by.IntN(5)], 1 + by.IntN(n)
	}
}
