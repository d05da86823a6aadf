package nfs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/octal"
)

// suffix is what a file under /etc/exports.d must end in to be read.
const suffix = ".exports"

// prefix marks the files of one instance.
func (e *Exporter) prefix() string {
	sum := sha256.Sum256([]byte(e.instance))
	return "tarn-" + hex.EncodeToString(sum[:4]) + "-"
}

func (e *Exporter) file(uuid string) string {
	return filepath.Join(e.paths.ExportsDir, e.prefix()+uuid+suffix)
}

// exportFile is what an export file says.
type exportFile struct {
	id      string
	source  string
	clients []client
}

// closing names the path in a file that exports nothing any more.
const closing = "# closing "

// client is one host to which a path is exported.
type client struct {
	addr    netip.Addr
	options options
}

func (c client) String() string { return c.addr.String() + "(" + c.options.String() + ")" }

func (f exportFile) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# volume %s, kept by tarn: changes made here are lost\n", f.id)
	if len(f.clients) == 0 {
		b.WriteString(closing + escape(f.source) + "\n")
		return b.String()
	}
	b.WriteString(escape(f.source))
	for _, c := range f.clients {
		b.WriteString(" " + c.String())
	}
	b.WriteString("\n")
	return b.String()
}

// readFile reads what String wrote. A line that is none of ours is skipped:
// the next Ensure replaces the file.
func readFile(path string) (exportFile, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return exportFile{}, err
	}
	return parseFile(string(raw)), nil
}

func parseFile(raw string) exportFile {
	var f exportFile
	for line := range strings.Lines(raw) {
		line = strings.TrimSuffix(line, "\n")
		if path, ok := strings.CutPrefix(line, closing); ok {
			f.source = octal.Unescape(path)
		}
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		f.source = octal.Unescape(fields[0])
		for _, field := range fields[1:] {
			host, rest, ok := strings.Cut(field, "(")
			addr, err := netip.ParseAddr(host)
			if ok && err == nil {
				f.clients = append(f.clients, client{addr: addr, options: parseOptions(strings.TrimSuffix(rest, ")"))})
			}
		}
	}
	return f
}

// has reports whether a host is one of the file's clients.
func (f exportFile) has(host string) bool {
	return slices.ContainsFunc(f.clients, func(c client) bool { return c.addr.String() == host })
}

// checkPath refuses what cannot be told to exportfs as HOST:/PATH.
func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return fault.New(fault.Precondition, "%q cannot be exported: it must be a clean absolute path", path)
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fault.New(fault.Precondition, "%q cannot be exported: it holds control characters", path)
	}
	return nil
}

// escape writes a path as exports(5) wants it: what is not plain becomes a
// backslash and three octal digits.
func escape(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("/._-:+@,", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "\\%03o", c)
	}
	return b.String()
}

// hostPath is how exportfs(8) is told a client and a path.
func hostPath(host, path string) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return host + ":" + path
}
