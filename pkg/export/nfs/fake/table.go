package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// entry is one line of mountd's table.
type entry struct {
	path, host string
	options    string // as the table has them
}

func set(table []entry, e entry) []entry {
	for i := range table {
		if table[i].path == e.path && table[i].host == e.host {
			table[i] = e // exportfs replaces, it does not merge
			return table
		}
	}
	return append(table, e)
}

// parse reads options as exportfs does and returns them as it writes them down.
func parse(opts string) (string, error) {
	is := map[string]string{
		"access": "ro", "sync": "sync", "wdelay": "wdelay", "hide": "hide", "crossmnt": "nocrossmnt", "secure": "secure",
		"root": "root_squash", "all": "no_all_squash", "subtree": "no_subtree_check", "locks": "secure_locks", "acl": "acl",
		"pnfs": "no_pnfs", "anonuid": "65534", "anongid": "65534", "sec": "sys",
	}
	toggles := map[string]string{
		"rw": "access", "ro": "access", "sync": "sync", "async": "sync", "wdelay": "wdelay", "no_wdelay": "wdelay",
		"hide": "hide", "nohide": "hide", "crossmnt": "crossmnt", "nocrossmnt": "crossmnt", "secure": "secure", "insecure": "secure",
		"root_squash": "root", "no_root_squash": "root", "all_squash": "all", "no_all_squash": "all",
		"subtree_check": "subtree", "no_subtree_check": "subtree", "secure_locks": "locks", "insecure_locks": "locks",
		"acl": "acl", "no_acl": "acl", "pnfs": "pnfs", "no_pnfs": "pnfs",
	}
	var more string
	for word := range strings.SplitSeq(opts, ",") {
		key, value, valued := strings.Cut(word, "=")
		switch {
		case toggles[word] != "":
			is[toggles[word]] = word
		case word == "mountpoint" || word == "mp":
			more += "mountpoint,"
		case key == "mountpoint" || key == "mp":
			more += "mountpoint=" + value + ","
		case key == "fsid" && valued:
			more += word + ","
		case key == "sec" && valued:
			is["sec"] = value
		case key == "anonuid" || key == "anongid":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return "", fmt.Errorf("exportfs: bad anonuid %q", word)
			}
			is[key] = strconv.Itoa(int(int32(uint32(n)))) // written with %d
		default:
			return "", fmt.Errorf("exportfs: unknown keyword %q", word)
		}
	}
	return fmt.Sprintf("%[1]s,%[2]s,%[3]s,%[4]s,%[5]s,%[6]s,%[7]s,%[8]s,%[9]s,%[10]s,%[11]s,%[12]s,%[13]sanonuid=%[14]s,anongid=%[15]s,sec=%[16]s,%[1]s,%[6]s,%[7]s,%[8]s",
		is["access"], is["sync"], is["wdelay"], is["hide"], is["crossmnt"], is["secure"], is["root"], is["all"], is["subtree"],
		is["locks"], is["acl"], is["pnfs"], more, is["anonuid"], is["anongid"], is["sec"]), nil
}

// load and store read and write the table.
func (h *Host) load() ([]entry, error) {
	raw, err := os.ReadFile(h.Paths().Etab)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var table []entry
	for line := range strings.Lines(string(raw)) {
		path, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		host, opts, _ := strings.Cut(rest, "(")
		table = append(table, entry{path: plain(path), host: host, options: strings.TrimSuffix(opts, ")")})
	}
	return table, nil
}

func (h *Host) store(table []entry) error {
	var b strings.Builder
	for _, e := range table {
		b.WriteString(quoted(e.path) + "\t" + e.host + "(" + e.options + ")\n")
	}
	temp := h.Paths().Etab + ".tmp"
	if err := os.WriteFile(temp, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, h.Paths().Etab)
}

// quoted writes a path as nfs-utils' qword_add: what separates words, and what
// is no printable character, in octal.
func quoted(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c <= ' ' || c == '\\' || c >= 0x7f {
			fmt.Fprintf(&b, "\\%03o", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func plain(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			n, _ := strconv.ParseUint(s[i+1:i+4], 8, 8)
			b.WriteByte(byte(n))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// reread is exportfs -r: the table becomes what is in the files. What follows a
// wrong line in a file is lost with it; other files are not.
func (h *Host) reread(complaints *strings.Builder) error {
	files, err := filepath.Glob(filepath.Join(h.Paths().ExportsDir, "*.exports"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	var table []entry
	for _, path := range append([]string{h.Exports()}, files...) {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(raw)) {
			fields := strings.Fields(line)
			if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
				continue
			}
			entries, err := h.parseLine(fields)
			if err != nil {
				fmt.Fprintf(complaints, "exportfs: %s: %v\n", path, err)
				break
			}
			for _, e := range entries {
				table = set(table, e)
			}
		}
	}
	return h.store(table)
}

func (h *Host) parseLine(fields []string) ([]entry, error) {
	var list []entry
	for _, field := range fields[1:] {
		host, opts, ok := strings.Cut(field, "(")
		opts, closed := strings.CutSuffix(opts, ")")
		if ok && !closed {
			return nil, fmt.Errorf("bad option list %q", field)
		}
		parsed, err := parse(opts)
		if err != nil {
			return nil, err
		}
		if h.resolves(host) {
			list = append(list, entry{path: plain(fields[0]), host: host, options: parsed})
		}
	}
	return list, nil
}

// Grants returns the options of each client that may mount the path.
func (h *Host) Grants(path string) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	table, err := h.load()
	if err != nil {
		return nil
	}
	grants := map[string]string{}
	for _, e := range table {
		if e.path == path {
			grants[e.host] = e.options
		}
	}
	return grants
}
