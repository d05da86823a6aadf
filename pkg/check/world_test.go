package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/run"
)

// files are a host's, by path. "-> TARGET" is a link, and a path that ends in a
// slash a directory.
type files map[string]string

func (f files) with(more files) files {
	m := maps.Clone(f)
	maps.Copy(m, more)
	return m
}

func (f files) without(names ...string) files {
	m := maps.Clone(f)
	for _, n := range names {
		delete(m, n)
	}
	return m
}

// said is what a tool prints, and how it ends.
type said struct {
	out string
	err error
}

// tools answers for children, by the begin of the command line. A tool that is
// not in it is missing.
type tools map[string]said

func (f tools) Run(ctx context.Context, c run.Cmd) ([]byte, error) {
	line := strings.Join(append([]string{c.Tool}, c.Args...), " ")
	best := ""
	for begin := range f {
		if strings.HasPrefix(line, begin) && len(begin) > len(best) {
			best = begin
		}
	}
	if best == "" {
		return nil, &run.Error{Line: line, Code: -1, Err: errors.New("executable file not found")}
	}
	if errors.Is(f[best].err, errHangs) {
		<-ctx.Done()
		return nil, &run.Error{Line: line, Code: -1, Err: ctx.Err()}
	}
	return []byte(f[best].out), f[best].err
}

// errHangs makes a tool one that never ends by itself.
var errHangs = errors.New("hangs")

func (tools) Pipe(context.Context, run.Cmd, run.Cmd) ([]byte, error) {
	return nil, errors.New("nothing here is piped")
}

func (tools) Track(_ context.Context, tool, _, _ string) func(error) {
	return func(error) { panic("a child of go-zfs is not bounded: " + tool) }
}

// newWorld returns a checker on a host that is made of files.
func newWorld(t *testing.T, f files, tl tools) *Checker {
	t.Helper()
	root := t.TempDir()
	for name, text := range f {
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, link := strings.CutPrefix(text, "-> "); {
		case strings.HasSuffix(name, "/"):
		case link:
			err = os.Symlink(target, path)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.NodeName = "worker-1"
	cfg.Pools = []config.Pool{{Name: "tank", Parent: "tank/csi", Addresses: []string{"192.0.2.10"}}}
	if err := cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	c := New(cfg, tl)
	c.host = host{root: root}
	c.settle = 0
	c.grace = 20 * time.Millisecond
	c.euid = func() int { return 0 }
	c.addresses = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.10")}, nil }
	c.lookPath = func(tool string) (string, error) {
		for line := range tl {
			if name, _, _ := strings.Cut(line, " "); name == tool {
				return "/usr/sbin/" + tool, nil
			}
		}
		return "", fmt.Errorf("%s: not found", tool)
	}
	return c
}

// row is one host and how it is judged: by its status, and by words that the
// finding must say.
type row struct {
	name  string
	files files
	tools tools
	want  Status
	words []string
}

func judge(t *testing.T, rows []row, find func(*Checker) Finding) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { want(t, find(newWorld(t, r.files, r.tools)), r.want, r.words...) })
	}
}

func want(t *testing.T, f Finding, status Status, words ...string) {
	t.Helper()
	if f.Status != status {
		t.Errorf("%+v, want %s", f, status)
	}
	if (f.Status == OK) != (f.Advice == "") {
		t.Errorf("%+v: advice is for what is not OK", f)
	}
	for _, w := range words {
		if !strings.Contains(f.Found+": "+f.Advice, w) {
			t.Errorf("%+v does not say %q", f, w)
		}
	}
}

// collect runs a look that adds.
func collect(t *testing.T, do func(context.Context, func(...Finding))) []Finding {
	t.Helper()
	var list []Finding
	do(t.Context(), func(f ...Finding) { list = append(list, f...) })
	return list
}

// named returns the one finding of a name.
func named(t *testing.T, list []Finding, name string) Finding {
	t.Helper()
	var found []Finding
	for _, f := range list {
		if f.Name == name {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings are of %q among %+v", len(found), name, list)
	}
	return found[0]
}
