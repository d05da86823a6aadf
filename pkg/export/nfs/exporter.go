// Package nfs exports directories with the kernel's NFS server. Every export
// stands in a file of its own under /etc/exports.d, since nearly every zfs
// command re-reads those files and drops the exports that are in none; what
// mountd really grants is read back from its table.
package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/file"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Paths are the host's files; for tests they lie elsewhere.
type Paths struct {
	// ExportsDir holds the export files; it is made when it is missing.
	ExportsDir string
	// Etab is mountd's table of what it grants (exportfs(8)).
	Etab string
	// Proc is /proc.
	Proc string
}

// HostPaths are where Debian and all others have them.
var HostPaths = Paths{ExportsDir: "/etc/exports.d", Etab: "/var/lib/nfs/etab", Proc: "/proc"}

// Runner starts children; *run.Runner is one.
type Runner interface {
	Run(ctx context.Context, c run.Cmd) ([]byte, error)
}

// Exporter exports over NFS.
type Exporter struct {
	run      Runner
	paths    Paths
	instance string
	log      logrus.FieldLogger
	tables   tables

	mu sync.Mutex
	// jobs wait for the next exportfs; working is true while there is one.
	jobs    []*job
	working bool
	// warned holds what was logged once.
	warned map[string]bool
	// mountd is the process that was last seen to be mountd.
	mountd string
}

var _ export.Exporter = (*Exporter)(nil)

// New returns an exporter whose files carry the mark of the instance, so that
// two instances on one host keep apart.
func New(r Runner, paths Paths, instance string, log logrus.FieldLogger) *Exporter {
	return &Exporter{run: r, paths: paths, instance: instance, log: log, warned: map[string]bool{}}
}

// Ensure implements export.Exporter. It takes one child, and none when nothing
// is to do.
func (e *Exporter) Ensure(ctx context.Context, v export.Volume) error {
	if err := checkPath(v.Source); err != nil {
		return err
	}
	wanted := clients(v)
	if len(wanted) == 0 {
		return e.close(ctx, v.UUID, v.Source)
	}
	if err := e.Ready(ctx); err != nil {
		return err
	}
	path := e.file(v.UUID)
	before, err := readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// While the file still names it: cut off here, the next Ensure does it again.
	if before.source != "" && before.source != v.Source {
		if err := e.apply(ctx, before.source, nil, before); err != nil {
			return err
		}
	}
	if err := e.writeFile(path, exportFile{id: v.ID, source: v.Source, clients: wanted}); err != nil {
		return err
	}
	return e.apply(ctx, v.Source, wanted, before)
}

// Remove implements export.Exporter.
func (e *Exporter) Remove(ctx context.Context, uuid string) error {
	return e.close(ctx, uuid, "")
}

// close takes the volume's paths from everybody. The file is emptied first, so
// that no exportfs -r brings the export back, and removed last, so that what is
// cut off in between is found again.
func (e *Exporter) close(ctx context.Context, uuid, source string) error {
	path := e.file(uuid)
	before, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if source == "" {
			return nil
		}
		return e.apply(ctx, source, nil, exportFile{})
	}
	if err != nil {
		return err
	}
	if before.source == "" {
		// Nobody knows any more what it exported.
		if err := file.Remove(path); err != nil {
			return err
		}
		if err := e.commit(ctx, &job{reread: true}); err != nil {
			return err
		}
		return e.close(ctx, uuid, source)
	}
	if err := e.writeFile(path, exportFile{id: "closing", source: before.source}); err != nil {
		return err
	}
	if err := e.apply(ctx, before.source, nil, before); err != nil {
		return err
	}
	if source != "" && source != before.source {
		if err := e.apply(ctx, source, nil, before); err != nil {
			return err
		}
	}
	return file.Remove(path)
}

// List implements export.Exporter.
func (e *Exporter) List(context.Context) ([]export.Status, error) {
	files, err := filepath.Glob(filepath.Join(e.paths.ExportsDir, e.prefix()+"*"+suffix))
	if err != nil {
		return nil, err
	}
	table, err := e.tables.read(e.paths.Etab)
	if err != nil {
		return nil, err
	}
	var list []export.Status
	for _, path := range files {
		st, ok, err := e.status(path, table)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, st)
		}
	}
	return list, nil
}

// Others lists what mountd grants that is in none of this instance's files.
func (e *Exporter) Others(context.Context) ([]export.Other, error) {
	// The table comes first: a file is written before its entries.
	table, err := e.tables.read(e.paths.Etab)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(e.paths.ExportsDir, e.prefix()+"*"+suffix))
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, path := range files {
		f, err := readFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		ours[f.source] = true
	}
	var list []export.Other
	for source, hosts := range table {
		for host := range hosts {
			if !ours[source] {
				list = append(list, export.Other{Name: hostPath(host, source), Source: source})
			}
		}
	}
	return list, nil
}

// Look implements export.Exporter.
func (e *Exporter) Look(_ context.Context, uuid string) (export.Status, bool, error) {
	table, err := e.tables.read(e.paths.Etab)
	if err != nil {
		return export.Status{}, false, err
	}
	return e.status(e.file(uuid), table)
}

// status compares an export file with the table; false when there is none.
func (e *Exporter) status(path string, table etab) (export.Status, bool, error) {
	f, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return export.Status{}, false, nil
	}
	if err != nil {
		return export.Status{}, false, err
	}
	add, drop := table.difference(f.source, f.clients)
	st := export.Status{
		UUID:     strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), e.prefix()), suffix),
		Complete: len(add) == 0 && len(drop) == 0,
	}
	for host := range table[f.source] {
		st.Clients = append(st.Clients, host)
	}
	slices.Sort(st.Clients)
	return st, true, nil
}

// writeFile replaces an export file, unless it says the same already.
func (e *Exporter) writeFile(path string, f exportFile) error {
	text := f.String()
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	if err := os.MkdirAll(e.paths.ExportsDir, 0o755); err != nil {
		return err
	}
	// A temporary name that does not end in .exports is not read (exports(5)).
	if err := file.Replace(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// clients are the wanted export lines, one an address.
func clients(v export.Volume) []client {
	var list []client
	seen := map[netip.Addr]bool{}
	for _, g := range v.SortedGrants() {
		for _, a := range g.Addresses {
			if seen[a] {
				continue
			}
			seen[a] = true
			list = append(list, client{addr: a, options: optionsFor(v.Squash, g.ReadOnly)})
		}
	}
	return list
}
