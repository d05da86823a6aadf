//go:build faults

package steps

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tarn-csi/tarn/pkg/step"
	"github.com/tarn-csi/tarn/test/inprocess"
)

var (
	errKilled   = errors.New("the process is killed")
	errInjected = errors.New("a fault was injected")
)

// fakes is a World without root: the driver of test/inprocess. A process that is
// killed at a step is one of which no side effect is seen from then on.
type fakes struct {
	*inprocess.Driver
	conn *grpc.ClientConn

	mu     sync.Mutex
	active bool
	what   string
	at     int
	steps  []string
	hit    bool
	dead   bool
	healed chan struct{}
	// running is how many calls are being served.
	running sync.WaitGroup
}

func newFakes(t *testing.T) *fakes {
	t.Helper()
	w := &fakes{}
	w.Driver = inprocess.Start(t, func(p *inprocess.Parts) {
		p.Before = []grpc.UnaryServerInterceptor{w.serve}
		p.Pods.Pool = pool
	})
	var err error
	if w.conn, err = grpc.NewClient(w.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close() })
	step.Set(w.begin)
	t.Cleanup(func() { step.Set(nil) })
	return w
}

func (w *fakes) serve(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	w.running.Add(1)
	defer w.running.Done()
	return handler(ctx, req)
}

func (w *fakes) Hit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hit
}

func (w *fakes) Reconcile(ctx context.Context) error { return w.Volumes.Reconcile(ctx) }

func (w *fakes) Conn() *grpc.ClientConn { return w.conn }
func (w *fakes) NodeID() string         { return w.Driver.Node.ID.String() }
func (w *fakes) Dir() string            { return w.Storage.Dir("pods") }

func (w *fakes) begin(ctx context.Context, kind step.Kind, name string) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.dead:
		return nil, errKilled
	case !w.active:
		return func() {}, nil
	}
	w.steps = append(w.steps, Plain(string(kind)+" "+name))
	if len(w.steps) != w.at {
		return func() {}, nil
	}
	switch w.what {
	case KillBefore:
		w.hit, w.dead = true, true
		return nil, errKilled
	case Fail:
		w.hit = true
		return nil, errInjected
	case Hang:
		w.hit = true
		healed := w.healed
		w.mu.Unlock()
		defer w.mu.Lock()
		select {
		case <-healed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func() {}, nil
}

func (w *fakes) Plan(what string, at int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active, w.what, w.at, w.steps, w.hit, w.healed = true, what, at, nil, false, make(chan struct{})
	return nil
}

// End also kills a process that has done its last step, and whose answer is lost.
func (w *fakes) End(context.Context) (Outcome, error) {
	// A call whose caller has left ends, also while a step of it hangs.
	w.running.Wait()
	w.mu.Lock()
	if w.what == KillBefore && w.at == len(w.steps)+1 {
		w.hit, w.dead = true, true
	}
	o := Outcome{Steps: slices.Clone(w.steps), Hit: w.hit}
	w.active = false
	dead := w.dead
	close(w.healed)
	w.mu.Unlock()
	if dead {
		w.Driver.Stop()
		w.mu.Lock()
		w.dead = false
		w.mu.Unlock()
		w.Driver.Restart()
	}
	return o, nil
}

func (w *fakes) State() ([]string, error) {
	var list []string
	for _, name := range w.Storage.Pool.Names() {
		d, err := w.Storage.Pool.Get(context.Background(), name)
		if err != nil {
			return nil, err
		}
		if name == "tank" || name == "tank/csi" || strings.HasSuffix(name, "/.tombstones") || strings.HasSuffix(name, "/.incoming") {
			continue
		}
		list = append(list, "dataset "+name)
		for property, value := range d.LocalPrefix("") {
			list = append(list, name+" "+property+"="+value)
		}
		if at, mounted, err := w.Storage.Pool.MountedAt(context.Background(), name); err == nil && mounted {
			list = append(list, name+" is mounted at "+filepath.Base(at))
		}
	}
	list = append(append(append(list, w.Storage.Exports()...), w.Storage.Targets()...), w.Driver.Node.Left()...)
	for _, v := range w.Driver.Node.Violations() {
		list = append(list, "violation: "+v)
	}
	for _, dir := range []string{"state", "chap", "nfs/etc", "pods", "run"} {
		files, err := filesBelow(w.Storage.Dir(dir))
		if err != nil {
			return nil, err
		}
		list = append(list, files...)
	}
	for k := range list {
		list[k] = Plain(strings.ReplaceAll(list[k], w.Storage.Dir(""), ""))
	}
	slices.Sort(list)
	return list, nil
}

// filesBelow lists the files below a folder; folders are the orchestrator's, but
// for the staging paths of pods' own volumes.
func filesBelow(dir string) ([]string, error) {
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && (!d.IsDir() || strings.Contains(path, "/ephemeral/")) {
			list = append(list, "file "+path)
		}
		return err
	})
	return list, err
}

func (w *fakes) Write(path string, block bool, data []byte) error {
	return w.Driver.Node.Write(path, block, data)
}

func (w *fakes) Read(path string, block bool, size int) ([]byte, error) {
	return w.Driver.Node.Read(path, block, size)
}

// Each call of a life is cut off, fails and hangs at each of its steps.
func TestEachStepOnFakes(t *testing.T) {
	counted := counts{}
	for _, u := range Uses {
		t.Run(u.Name, func(t *testing.T) {
			tour := func(t *testing.T, disturb func(string) (string, int), reference *Report) Report {
				t.Helper()
				r, err := Tour{
					World: newFakes(t), Use: u, Disturb: disturb, HangFor: 20 * time.Millisecond, Patience: 10 * time.Second,
					Say: t.Logf,
				}.Run(t.Context(), reference)
				if err != nil {
					t.Error(err)
				}
				return r
			}
			undisturbed := tour(t, func(string) (string, int) { return Count, 0 }, nil)
			if t.Failed() {
				return
			}
			counted.add(u, undisturbed)
			most := 0 // steps of a call
			for _, steps := range undisturbed.Steps {
				most = max(most, len(steps))
			}
			for _, what := range []string{KillBefore, Fail, Hang} {
				for k := 1; k <= most+1; k++ {
					disturb := func(call string) (string, int) {
						n := len(undisturbed.Steps[call])
						if what == KillBefore {
							n++ // after the last
						}
						if k > n {
							return Count, 0
						}
						return what, k
					}
					t.Run(what, func(t *testing.T) { tour(t, disturb, &undisturbed) })
				}
			}
		})
	}
	if !t.Failed() {
		counted.compare(t, "testdata/fakes.txt", true)
	}
}

// TestMain keeps the files of the fakes in memory where it can: each of them is
// written for good, thousands of times.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
