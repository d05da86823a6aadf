package storage

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tarn-csi/tarn/pkg/export/nfs"
)

// etabName is mountd's table. A path belongs to the table in the nearest
// directory above it that has one, so that several hosts can be in one process.
const etabName = ".etab"

// exportfs is exportfs(8) as far as it is used: it grants and takes away, and
// keeps the table in mountd's format. What is not granted cannot be taken away.
// It is a script of built-in commands, since a process of ours would take
// longer to start than a whole call.
const exportfs = `#!/bin/sh
fail() { echo "exportfs: $1" >&2; exit 1; }
verb=$1
case $verb in
-o) options=$2; shift 2 ;;
-u) shift ;;
*) fail "unexpected $verb" ;;
esac
[ $# -gt 0 ] || fail "nothing to do"
dir=${1#*:/}
dir=/$dir
while [ ! -e "$dir/.etab" ]; do
	[ -n "$dir" ] || fail "no host has $1"
	dir=${dir%/*}
done
until mkdir "$dir/.etab.lock" 2>/dev/null; do :; done
trap 'rmdir "$dir/.etab.lock"' EXIT
tab=$(printf '\t')
for entry; do
	case $entry in
	\[*) host=${entry%%]*}; host=${host#[}; path=${entry#*]:} ;;
	*) host=${entry%%:*}; path=${entry#*:} ;;
	esac
	found=
	while IFS= read -r line; do
		case $line in
		"$path$tab$host("*) found=yes ;;
		*) printf '%s\n' "$line" ;;
		esac
	done <"$dir/.etab" >"$dir/.etab.new"
	if [ "$verb" = -o ]; then
		printf '%s\t%s(%s,wdelay,hide,nocrossmnt,secure)\n' "$path" "$host" "$options" >>"$dir/.etab.new"
	elif [ -z "$found" ]; then
		fail "Could not find '$entry' to unexport."
	fi
	mv "$dir/.etab.new" "$dir/.etab"
done
`

// installed puts exportfs first in PATH, once for the whole process: pkg/run
// looks tools up there.
var installed = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "exportfs-")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "exportfs"), []byte(exportfs), 0o755); err != nil {
		return err
	}
	return os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
})

// server makes the files of a running NFS server.
func (h *Host) server() error {
	for name, text := range map[string]string{
		"proc/fs/nfsd/threads":  "8\n",
		"proc/fs/nfsd/portlist": "tcp 2049\n",
		etabName:                "",
	} {
		path := filepath.Join(h.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) paths() nfs.Paths {
	return nfs.Paths{ExportsDir: filepath.Join(h.dir, "exports.d"), Etab: filepath.Join(h.dir, etabName), Proc: filepath.Join(h.dir, "proc")}
}

// Exports returns mountd's table, one line a path and client, sorted.
func (h *Host) Exports() []string {
	raw, err := os.ReadFile(h.paths().Etab)
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
	files, _ := filepath.Glob(filepath.Join(h.paths().ExportsDir, "*"))
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
		errs = append(errs, os.RemoveAll(h.paths().ExportsDir))
	}
	return errors.Join(append(errs, os.WriteFile(h.paths().Etab, nil, 0o644))...)
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
	return os.WriteFile(filepath.Join(h.paths().ExportsDir, name), raw, 0o644)
}
