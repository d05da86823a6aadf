package nfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tarn-csi/tarn/pkg/octal"
)

// etab is mountd's table: the options by path and client, the client as it was
// spelled when it was exported.
type etab map[string]map[string]options

// tables reads mountd's table, and parses it once as long as it stays the same:
// it has a line for each export, and is asked for each volume.
type tables struct {
	mu sync.Mutex
	// file is what last was parsed. While it is open no other file can be taken for
	// it.
	file *os.File
	info os.FileInfo
	last etab
}

// read returns the table, which nobody may change; a missing one is empty, as
// nothing was exported yet. exportfs replaces it by rename, so it is never seen
// half written.
func (t *tables) read(path string) (etab, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return etab{}, nil
	}
	if err == nil && t.file != nil && os.SameFile(info, t.info) && info.Size() == t.info.Size() && info.ModTime().Equal(t.info.ModTime()) {
		return t.last, nil
	}
	if err == nil {
		err = t.parse(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read mountd's table: %w", err)
	}
	return t.last, nil
}

// parse reads the file that is there now, and keeps it.
func (t *tables) parse(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(f)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if t.file != nil {
		err = t.file.Close()
	}
	t.file, t.info, t.last = f, info, parseEtab(string(raw))
	return err
}

// parseEtab reads lines of PATH, a tab, and CLIENT(OPTIONS), as xtab.c of
// nfs-utils writes them. What is no such line grants nothing.
func parseEtab(raw string) etab {
	table := etab{}
	for line := range strings.Lines(raw) {
		path, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		host, opts, ok2 := strings.Cut(rest, "(")
		if !ok || !ok2 || !strings.HasSuffix(opts, ")") {
			continue
		}
		source := octal.Unescape(path)
		if table[source] == nil {
			table[source] = map[string]options{}
		}
		table[source][host] = parseOptions(strings.TrimSuffix(opts, ")"))
	}
	return table
}

// difference returns which clients of the path must be exported (again) and
// which hosts, in the table's spelling, must lose it.
func (t etab) difference(source string, wanted []client) (add []client, drop []string) {
	want := map[string]bool{}
	for _, c := range wanted {
		host := c.addr.String()
		want[host] = true
		if have, ok := t[source][host]; !ok || c.options != have {
			add = append(add, c)
		}
	}
	for host := range t[source] {
		if !want[host] {
			drop = append(drop, host)
		}
	}
	slices.Sort(drop)
	return add, drop
}

// above returns the exports that open the path from a directory above it.
func (t etab) above(source string) []string {
	var list []string
	for path, hosts := range t {
		if !strings.HasPrefix(source, strings.TrimSuffix(path, "/")+"/") {
			continue
		}
		for host, o := range hosts {
			if strings.Contains(o.beyond, "crossmnt") {
				list = append(list, hostPath(host, path))
			}
		}
	}
	slices.Sort(list)
	return list
}
