package nfs_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/export/nfs/fake"
	"github.com/tarn-csi/tarn/pkg/run"
)

// The rules are what the package promises, on a fake host here and on a real NFS
// server in the guest.

type rule struct {
	name  string
	check func(w *world)
}

// host is what is below the exporter.
type host interface {
	nfs.Runner
	Paths() nfs.Paths
	// Exports is the host's /etc/exports.
	Exports() string
	// ByHand is an exportfs of somebody else.
	ByHand(args ...string) error
	StartServer() error
	StopServer() error
	StartMountd() error
	StopMountd() error
}

// world is a host and an exporter on it.
type world struct {
	*testing.T
	*nfs.Exporter
	host   host
	runner *counter
	// dir holds directories that can be exported; a blank is in it.
	dir string
	log *strings.Builder
}

// counter counts children, and can fail all that follow.
type counter struct {
	below nfs.Runner
	lines []string
	cutAt int
}

var errCut = errors.New("killed here")

func (c *counter) Run(ctx context.Context, cmd run.Cmd) ([]byte, error) {
	c.lines = append(c.lines, cmd.Tool+" "+strings.Join(cmd.Args, " "))
	if c.cutAt > 0 && len(c.lines) >= c.cutAt {
		return nil, errCut
	}
	return c.below.Run(ctx, cmd)
}

// children returns how many children a call took.
func (c *counter) children(call func()) int {
	before := len(c.lines)
	call()
	return len(c.lines) - before
}

func newWorld(t *testing.T, h host, dir string) *world {
	w := &world{T: t, host: h, runner: &counter{below: h}, dir: dir, log: &strings.Builder{}}
	w.Exporter = w.exporter("tarn.example")
	return w
}

// exporter is another process on the same host.
func (w *world) exporter(instance string) *nfs.Exporter {
	log := logrus.New()
	log.SetOutput(io.MultiWriter(w.log, io.Discard))
	return nfs.New(w.runner, w.host.Paths(), instance, log)
}

func (w *world) must(errs ...error) {
	w.Helper()
	for _, err := range errs {
		if err != nil {
			w.Fatalf("preparation: %v", err)
		}
	}
}

func (w *world) works(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("it should succeed: %v", err)
	}
}

// together calls for all volumes at once, which takes few exportfs.
func (w *world) together(list []export.Volume, call func(export.Volume) error) {
	w.Helper()
	errs := make(chan error, len(list))
	for _, v := range list {
		go func() { errs <- call(v) }()
	}
	var all error
	for range list {
		all = errors.Join(all, <-errs)
	}
	w.works(all)
}

func (w *world) fails(err, kind error) {
	w.Helper()
	if err == nil || !errors.Is(err, kind) {
		w.Fatalf("the error is %v, and should be of kind %v", err, kind)
	}
}

func equal[T comparable](w *world, what string, got, want T) {
	w.Helper()
	if got != want {
		w.Fatalf("%s: %v, and should be %v", what, got, want)
	}
}

const (
	uuidA = "0123456789abcdef0123456789abcdef"
	uuidB = "fedcba9876543210fedcba9876543210"
)

// volume is a volume with a directory of its own, open to nodes. A node is an
// address list; "ro " before it makes it read-only.
func (w *world) volume(uuid string, nodes ...string) export.Volume {
	w.Helper()
	v := export.Volume{ID: "pool/" + uuid[:4], UUID: uuid, Source: filepath.Join(w.dir, uuid[:4]), Squash: export.Squash{Mode: "none", AnonUID: 65534, AnonGID: 65534}}
	w.must(os.MkdirAll(v.Source, 0o755))
	for i, n := range nodes {
		list, readOnly := strings.CutPrefix(n, "ro ")
		g := export.Grant{Node: string(rune('a' + i)), ReadOnly: readOnly}
		for _, a := range strings.Fields(list) {
			g.Addresses = append(g.Addresses, netip.MustParseAddr(a))
		}
		v.Grants = append(v.Grants, g)
	}
	return v
}

// table reads mountd's table by itself: the options by client for a path.
func (w *world) table(path string) map[string]string {
	w.Helper()
	raw, err := os.ReadFile(w.host.Paths().Etab)
	w.must(err)
	grants := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		p, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		host, opts, _ := strings.Cut(rest, "(")
		if strings.ReplaceAll(p, `\040`, " ") == path {
			grants[host] = "," + strings.TrimSuffix(opts, ")") + ","
		}
	}
	return grants
}

// granted expects exactly these clients.
func (w *world) granted(path string, hosts ...string) {
	w.Helper()
	slices.Sort(hosts)
	equal(w, "clients of "+path, strings.Join(slices.Sorted(maps.Keys(w.table(path))), " "), strings.Join(hosts, " "))
}

// files are the export files there are.
func (w *world) files() int {
	w.Helper()
	entries, err := os.ReadDir(w.host.Paths().ExportsDir)
	if !errors.Is(err, os.ErrNotExist) {
		w.must(err)
	}
	return len(entries)
}

// exportAll runs what nearly every zfs command runs.
func (w *world) exportAll() {
	w.Helper()
	w.must(w.host.ByHand("-ra"))
}

func runRules(t *testing.T, fresh func(t *testing.T) *world) {
	for _, group := range [][]rule{exportRules, repairRules, serverRules} {
		for _, r := range group {
			t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) { r.check(fresh(t)) })
		}
	}
}

func TestContractFake(t *testing.T) {
	runRules(t, func(t *testing.T) *world {
		t.Parallel()
		h, err := fake.New(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return newWorld(t, h, filepath.Join(t.TempDir(), "a b"))
	})
}

// status returns the listed state of one volume.
func (w *world) status(uuid string) (export.Status, bool) {
	w.Helper()
	list, err := w.List(w.Context())
	w.works(err)
	i := slices.IndexFunc(list, func(s export.Status) bool { return s.UUID == uuid })
	if i < 0 {
		return export.Status{}, false
	}
	return list[i], true
}
