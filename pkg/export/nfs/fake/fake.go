// Package fake is exportfs(8) on a host without a kernel: it keeps mountd's
// table in its real format, takes the command lines that exportfs takes, and
// exits with 0 where exportfs does so without having done anything. The contract
// test of package nfs runs one table against both.
package fake

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/step"
)

// Host is a storage host whose files lie below a directory. It is safe for
// concurrent use.
type Host struct {
	dir string

	mu    sync.Mutex
	calls []string
	hosts map[string]bool
	// names are of addresses that the resolver knows.
	names map[string]string
	cutAt int // 0 is never; fails from this call on, without effect
	fail  error
}

var _ nfs.Runner = (*Host)(nil)

// mountdPID is the process that mountd has, while it runs.
const mountdPID = "4711"

// New returns a host with an NFS server that runs, below an empty directory.
func New(dir string) (*Host, error) {
	h := &Host{dir: dir, hosts: map[string]bool{}, names: map[string]string{"127.0.0.1": "localhost", "::1": "localhost"}}
	return h, errors.Join(os.MkdirAll(filepath.Join(dir, "etc"), 0o755), h.StartServer(), h.StartMountd())
}

// Paths are where this host has its files.
func (h *Host) Paths() nfs.Paths {
	return nfs.Paths{
		ExportsDir: filepath.Join(h.dir, "etc/exports.d"),
		Etab:       filepath.Join(h.dir, "var/lib/nfs/etab"),
		Proc:       filepath.Join(h.dir, "proc"),
	}
}

// Exports is the host's /etc/exports.
func (h *Host) Exports() string { return filepath.Join(h.dir, "etc/exports") }

func (h *Host) write(name, text string) error {
	path := filepath.Join(h.dir, name)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// StartServer is rpc.nfsd 8, after exportfs -r.
func (h *Host) StartServer() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := errors.Join(os.MkdirAll(filepath.Join(h.dir, "var/lib/nfs"), 0o755), h.reread(&strings.Builder{})); err != nil {
		return err
	}
	return errors.Join(h.write("proc/fs/nfsd/threads", "8\n"), h.write("proc/fs/nfsd/portlist", "tcp 2049\ntcp 2049\n"))
}

// StopServer is rpc.nfsd 0 and exportfs -ua, as a server's service stops.
func (h *Host) StopServer() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.write("proc/fs/nfsd/threads", "0\n"), h.write("proc/fs/nfsd/portlist", ""), h.store(nil))
}

// StartMountd and StopMountd are of rpc.mountd.
func (h *Host) StartMountd() error {
	return h.write("proc/"+mountdPID+"/stat", mountdPID+" (rpc.mountd) S 1 4711 4711 0 -1\n")
}

// StopMountd ends rpc.mountd.
func (h *Host) StopMountd() error { return os.RemoveAll(filepath.Join(h.dir, "proc", mountdPID)) }

// Resolve makes a host name known to the resolver.
func (h *Host) Resolve(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts[name] = true
}

// CutAfter lets n more children run and fails all that follow, without effect.
func (h *Host) CutAfter(n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cutAt, h.fail = len(h.calls)+n+1, err
}

// Heal takes back CutAfter.
func (h *Host) Heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cutAt = 0
}

// Calls returns the command lines so far.
func (h *Host) Calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// ExportAll is what nearly every zfs command runs: exportfs -ra.
func (h *Host) ExportAll() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reread(&strings.Builder{})
}

// ByHand is an exportfs of somebody else; it does not count as a call.
func (h *Host) ByHand(args ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.exportfs(args)
}

// Run implements nfs.Runner.
func (h *Host) Run(ctx context.Context, c run.Cmd) ([]byte, error) {
	line := c.Tool + " " + strings.Join(c.Args, " ")
	if c.Tool != "exportfs" {
		return nil, &run.Error{Line: line, Code: -1, Err: errors.New("executable file not found in $PATH")}
	}
	ended, err := step.Begin(ctx, step.Child, c.Tool)
	if err != nil {
		return nil, &run.Error{Line: line, Code: -1, Err: err}
	}
	defer ended()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, line)
	if h.cutAt > 0 && len(h.calls) >= h.cutAt {
		return nil, &run.Error{Line: line, Code: -1, Err: h.fail}
	}
	if err := ctx.Err(); err != nil {
		return nil, &run.Error{Line: line, Code: -1, Err: err}
	}
	if err := h.exportfs(c.Args); err != nil {
		return nil, &run.Error{Line: line, Code: 1, Stderr: err.Error(), Err: errors.New("exit status 1")}
	}
	return nil, nil
}

// exportfs does all that it can; its error is what it complains about.
func (h *Host) exportfs(args []string) error {
	var complaints strings.Builder
	var err error
	switch {
	case len(args) == 1 && (args[0] == "-r" || args[0] == "-ra"):
		err = h.reread(&complaints)
	case len(args) > 2 && args[0] == "-o":
		err = h.add(args[1], args[2:], &complaints)
	case len(args) > 1 && args[0] == "-u":
		err = h.drop(args[1:], &complaints)
	default:
		return fmt.Errorf("exportfs: usage: %q", args)
	}
	if err != nil {
		return err
	}
	if complaints.Len() > 0 {
		return errors.New(strings.TrimSpace(complaints.String()))
	}
	return nil
}

func (h *Host) add(opts string, args []string, complaints *strings.Builder) error {
	parsed, err := parse(opts)
	if err != nil {
		return err
	}
	table, err := h.load()
	if err != nil {
		return err
	}
	for _, arg := range args {
		host, path, ok := split(arg)
		if !ok {
			fmt.Fprintf(complaints, "exportfs: Invalid export syntax: %s\n", host)
			continue
		}
		if h.resolves(host) { // if not, it says so and exits with 0
			table = set(table, entry{path: path, host: host, options: parsed})
		}
	}
	return h.store(table)
}

func (h *Host) drop(args []string, complaints *strings.Builder) error {
	table, err := h.load()
	if err != nil {
		return err
	}
	for _, arg := range args {
		host, path, ok := split(arg)
		left := slices.DeleteFunc(slices.Clone(table), func(e entry) bool { return e.path == path && h.same(e.host, host) })
		if !ok || len(left) == len(table) {
			fmt.Fprintf(complaints, "exportfs: Could not find '%s:%s' to unexport.\n", host, path)
			continue
		}
		table = left
	}
	return h.store(table)
}

// same reports whether exportfs -u takes two hosts for one: those that resolve
// to the same name are.
func (h *Host) same(a, b string) bool { return a == b || h.names[a] != "" && h.names[a] == h.names[b] }

// Name makes addresses resolve to a name.
func (h *Host) Name(name string, addresses ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range addresses {
		h.names[a] = name
	}
}

// split reads HOST:/PATH; an IPv6 address is in brackets.
func split(arg string) (host, path string, ok bool) {
	if rest, bracket := strings.CutPrefix(arg, "["); bracket {
		host, rest, ok = strings.Cut(rest, "]")
		mask, path, ok2 := strings.Cut(rest, ":/")
		return host + mask, "/" + path, ok && ok2
	}
	host, path, ok = strings.Cut(arg, ":/")
	if !ok || strings.Contains(host, ":") {
		host, _, _ = strings.Cut(host, ":")
		return host, "", false
	}
	return host, "/" + path, true
}

// resolves reports whether exportfs would take a client: addresses, networks
// and patterns always, names that are known.
func (h *Host) resolves(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.ContainsAny(host, "*?/@") || h.hosts[host]
}
