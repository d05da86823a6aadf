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
	"time"

	"github.com/google/renameio/v2"
	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
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

// Exporter exports over NFS.
type Exporter struct {
	run      *run.Runner
	paths    Paths
	instance string
	log      logrus.FieldLogger

	mu sync.Mutex
	// changed is when each path's exports last changed, for recent changes.
	changed map[string]time.Time
}

// New returns an exporter whose files carry the mark of the instance, so that
// two instances on one host keep apart.
func New(r *run.Runner, paths Paths, instance string, log logrus.FieldLogger) *Exporter {
	return &Exporter{run: r, paths: paths, instance: instance, log: log, changed: map[string]time.Time{}}
}

// Ensure implements export.Exporter.
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
	if err := e.writeFile(e.file(v.UUID), exportFile{id: v.ID, source: v.Source, clients: wanted}); err != nil {
		return err
	}
	return e.apply(ctx, v.Source, wanted)
}

// Remove implements export.Exporter.
func (e *Exporter) Remove(ctx context.Context, uuid string) error {
	f, err := readFile(e.file(uuid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return e.close(ctx, uuid, f.source)
}

// close takes the path from everybody. The file is emptied first, so that no
// exportfs -r brings the export back, and removed last, so that what is cut off
// in between is found again.
func (e *Exporter) close(ctx context.Context, uuid, source string) error {
	path := e.file(uuid)
	if _, err := os.Stat(path); err == nil && source != "" {
		if err := e.writeFile(path, exportFile{id: "closing", source: source}); err != nil {
			return err
		}
	}
	if source != "" {
		if err := e.apply(ctx, source, nil); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List implements export.Exporter.
func (e *Exporter) List(context.Context) ([]export.Status, error) {
	files, err := filepath.Glob(filepath.Join(e.paths.ExportsDir, e.prefix()+"*"+suffix))
	if err != nil {
		return nil, err
	}
	table, err := readEtab(e.paths.Etab)
	if err != nil {
		return nil, err
	}
	var list []export.Status
	for _, path := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), e.prefix()), suffix)
		f, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		st := export.Status{UUID: name, Complete: true}
		for _, c := range f.clients {
			have, ok := table.find(f.source, c.addr)
			st.Complete = st.Complete && ok && c.options == have
			if ok {
				st.Clients = append(st.Clients, c.addr.String())
			}
		}
		slices.Sort(st.Clients)
		list = append(list, st)
	}
	return list, nil
}

// apply makes mountd's table hold exactly the wanted clients for the path: one
// child for all that is added or changed with the same options, one for all
// that is removed, none when nothing is to do. exportfs exits with 0 for what
// it could not do, so the table is read again.
func (e *Exporter) apply(ctx context.Context, source string, wanted []client) error {
	table, err := readEtab(e.paths.Etab)
	if err != nil {
		return err
	}
	add, drop := table.difference(source, wanted)
	if len(add) == 0 && len(drop) == 0 {
		return nil
	}
	if err := e.settle(ctx, source); err != nil {
		return err
	}
	if len(drop) > 0 {
		args := []string{"-u"}
		for _, host := range drop {
			args = append(args, hostPath(host, source))
		}
		if _, err := e.run.Run(ctx, run.Cmd{Tool: "exportfs", Args: args}); err != nil {
			return fault.New(fault.Unavailable, "close %s: %w", source, err)
		}
	}
	for _, group := range byOptions(add) {
		args := []string{"-o", group[0].options.String()}
		for _, c := range group {
			args = append(args, hostPath(c.addr.String(), source))
		}
		if _, err := e.run.Run(ctx, run.Cmd{Tool: "exportfs", Args: args}); err != nil {
			return fault.New(fault.Unavailable, "export %s: %w", source, err)
		}
	}
	if table, err = readEtab(e.paths.Etab); err != nil {
		return err
	}
	add, drop = table.difference(source, wanted)
	if len(add) > 0 || len(drop) > 0 {
		return fault.New(fault.Unavailable, "exportfs did not do what it was told for %s: still to add %v, to remove %v", source, add, drop)
	}
	return nil
}

// settle waits until the second has passed in which the path's exports changed
// last. The kernel's cache is flushed by a clock of whole seconds: a second
// change within one can leave it with the first (net/sunrpc/cache.c), and the
// next mount gets ESTALE.
func (e *Exporter) settle(ctx context.Context, source string) error {
	e.mu.Lock()
	last, now := e.changed[source], time.Now()
	for path, t := range e.changed {
		if now.Sub(t) > 2*time.Second {
			delete(e.changed, path)
		}
	}
	next := last.Truncate(time.Second).Add(time.Second)
	e.changed[source] = now
	if now.Before(next) {
		e.changed[source] = next
	}
	e.mu.Unlock()
	if !now.Before(next) {
		return nil
	}
	timer := time.NewTimer(next.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ready implements export.Exporter. A line in mountd's table is no proof that
// anybody serves it: threads, listeners and mountd are looked for too.
func (e *Exporter) Ready(context.Context) error {
	threads, err := os.ReadFile(filepath.Join(e.paths.Proc, "fs/nfsd/threads"))
	if err != nil {
		return fault.New(fault.Unavailable, "the NFS server is not running (%w): start nfs-server", err)
	}
	if strings.TrimSpace(string(threads)) == "0" {
		return fault.New(fault.Unavailable, "the NFS server has no threads: start nfs-server")
	}
	ports, err := os.ReadFile(filepath.Join(e.paths.Proc, "fs/nfsd/portlist"))
	if err != nil {
		return fault.New(fault.Unavailable, "the NFS server's ports cannot be read: %w", err)
	}
	if len(strings.TrimSpace(string(ports))) == 0 {
		return fault.New(fault.Unavailable, "the NFS server listens on no port: restart nfs-server")
	}
	if _, err := os.Stat(e.paths.Etab); err != nil {
		return fault.New(fault.Unavailable, "mountd has no export table (%w): start nfs-mountd", err)
	}
	return nil
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
	if err := renameio.WriteFile(path, []byte(text), 0o644); err != nil {
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
