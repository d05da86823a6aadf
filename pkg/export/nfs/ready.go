package nfs

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

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
	if !e.mountdRuns() {
		return fault.New(fault.Unavailable, "mountd does not run, so no node can mount: start nfs-mountd")
	}
	return nil
}

// mountdRuns looks for the daemon that answers the kernel when it asks who may
// mount what: rpc.mountd(8), or nfsv4.exportd(8) where only version 4 is served.
// The kernel itself does not tell.
func (e *Exporter) mountdRuns() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mountd != "" && e.isMountd(e.mountd) {
		return true
	}
	e.mountd = ""
	entries, err := os.ReadDir(e.paths.Proc)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if pid := entry.Name(); pid[0] >= '1' && pid[0] <= '9' && e.isMountd(pid) {
			e.mountd = pid
			return true
		}
	}
	return false
}

func (e *Exporter) isMountd(pid string) bool {
	stat, err := os.ReadFile(filepath.Join(e.paths.Proc, pid, "stat"))
	if err != nil {
		return false
	}
	for _, name := range []string{"rpc.mountd", "nfsv4.exportd"} {
		// The state follows the name (proc(5)); Z has ended and is not buried.
		if _, state, ok := strings.Cut(string(stat), " ("+name+") "); ok {
			return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
		}
	}
	return false
}
