package nfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
)

// options are the part of a client's export options that we set and compare.
type options struct {
	readOnly bool
	// squash is none, root or all.
	squash           string
	anonUID, anonGID uint32
	// the options that are the same for every export of ours
	sync, mountpoint, noSubtree, sys bool
}

func optionsFor(s export.Squash, readOnly bool) options {
	o := options{readOnly: readOnly, squash: s.Mode, anonUID: s.AnonUID, anonGID: s.AnonGID,
		sync: true, mountpoint: true, noSubtree: true, sys: true}
	if o.squash == "" {
		o.squash = "none"
	}
	return o
}

// String is the form of exports(5). mountpoint makes a path that is not
// mounted answer ENOENT, so that the directory under it is never served.
func (o options) String() string {
	access := "rw"
	if o.readOnly {
		access = "ro"
	}
	squash := map[string]string{"none": "no_root_squash,no_all_squash", "root": "root_squash,no_all_squash", "all": "root_squash,all_squash"}[o.squash]
	return fmt.Sprintf("%s,sync,no_subtree_check,mountpoint,sec=sys,%s,anonuid=%d,anongid=%d", access, squash, o.anonUID, o.anonGID)
}

// parseOptions reads the options of an export file or of mountd's table, where
// the defaults are spelled out and some have another spelling.
func parseOptions(s string) options {
	var o options
	root, all := true, false
	for word := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ro":
			o.readOnly = true
		case "rw":
			o.readOnly = false
		case "sync":
			o.sync = true
		case "mountpoint", "mp":
			o.mountpoint = true
		case "no_subtree_check":
			o.noSubtree = true
		case "sec":
			o.sys = value == "sys"
		case "no_root_squash":
			root = false
		case "all_squash":
			all = true
		case "anonuid":
			o.anonUID = parseAnon(value)
		case "anongid":
			o.anonGID = parseAnon(value)
		}
	}
	switch {
	case all:
		o.squash = "all"
	case root:
		o.squash = "root"
	default:
		o.squash = "none"
	}
	return o
}

// parseAnon reads an id, which mountd's table may show as a negative number.
func parseAnon(s string) uint32 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// etab is mountd's table: the options by path and client.
type etab map[string]map[string]options

// readEtab reads the table; a missing one is empty, as nothing was exported yet.
func readEtab(path string) (etab, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return etab{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read mountd's table: %w", err)
	}
	table := etab{}
	for line := range strings.Lines(string(raw)) {
		escaped, rest, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		host, opts, ok2 := strings.Cut(rest, "(")
		if !ok || !ok2 {
			continue
		}
		source := unescape(escaped)
		if table[source] == nil {
			table[source] = map[string]options{}
		}
		table[source][host] = parseOptions(strings.TrimSuffix(opts, ")"))
	}
	return table, nil
}

func (t etab) find(source string, addr netip.Addr) (options, bool) {
	o, ok := t[source][addr.String()]
	return o, ok
}

// difference returns which clients of the path must be exported (again) and
// which hosts, in mountd's spelling, must lose it.
func (t etab) difference(source string, wanted []client) (add []client, drop []string) {
	want := map[string]bool{}
	for _, c := range wanted {
		want[c.addr.String()] = true
		if have, ok := t.find(source, c.addr); !ok || c.options != have {
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

// byOptions groups clients that one exportfs can serve.
func byOptions(list []client) [][]client {
	var groups [][]client
	index := map[options]int{}
	for _, c := range list {
		i, ok := index[c.options]
		if !ok {
			i = len(groups)
			index[c.options] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}
