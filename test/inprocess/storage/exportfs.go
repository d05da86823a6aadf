package storage

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Exports returns mountd's table, one line a path and client, sorted.
func (h *Host) Exports() []string {
	raw, err := os.ReadFile(h.nfs.Paths().Etab)
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if lines[0] == "" {
		return nil
	}
	slices.Sort(lines)
	return lines
}

// ExportFiles returns the files under exports.d, sorted.
func (h *Host) ExportFiles() []string {
	files, _ := filepath.Glob(filepath.Join(h.nfs.Paths().ExportsDir, "*"))
	return files
}

// Granted reports whether mountd serves a path to an address, and whether it
// takes writes from there. A path that is not a mount is not served.
func (h *Host) Granted(path string, addr netip.Addr) (granted, writable bool) {
	prefix := fmt.Sprintf("%s\t%s(", path, addr)
	for _, line := range h.Exports() {
		if options, ok := strings.CutPrefix(line, prefix); ok {
			return h.mountedDir(path), strings.HasPrefix(options, "rw,")
		}
	}
	return false, false
}

// ShareBytes is the size that a client is shown of a path: its dataset's quota.
func (h *Host) ShareBytes(ctx context.Context, path string) (int64, error) {
	d, err := h.Pool.Get(ctx, strings.TrimPrefix(path, h.dir+"/"))
	return d.Bytes("refquota"), err
}

// exported reports whether mountd serves a path to anybody: the kernel then
// holds it.
func (h *Host) exported(path string) bool {
	return slices.ContainsFunc(h.Exports(), func(line string) bool { return strings.HasPrefix(line, path+"\t") })
}

// LoseExports is a reboot for the NFS server: its table and its files are as an
// administrator left them, empty.
func (h *Host) LoseExports(files bool) error {
	var errs []error
	if files {
		errs = append(errs, os.RemoveAll(h.nfs.Paths().ExportsDir))
	}
	return errors.Join(append(errs, os.WriteFile(h.nfs.Paths().Etab, nil, 0o644))...)
}

// StrayExport writes what an earlier life of an instance may have left: a file
// and a line in the table, for a volume that is gone.
func (h *Host) StrayExport(like, uuid string) error {
	raw, err := os.ReadFile(like)
	if err != nil {
		return err
	}
	base := filepath.Base(like)
	name := base[:strings.LastIndexByte(base, '-')+1] + uuid + ".exports"
	return os.WriteFile(filepath.Join(h.nfs.Paths().ExportsDir, name), raw, 0o644)
}

// ForeignExport is an export that a person made by hand: in the table alone.
func (h *Host) ForeignExport(path, client string) error {
	f, err := os.OpenFile(h.nfs.Paths().Etab, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%s(ro,sync,no_subtree_check)\n", path, client)
	return errors.Join(err, f.Close())
}
