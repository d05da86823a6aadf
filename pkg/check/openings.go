package check

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// openings names what mountd grants at or below a parent without a publication:
// an export of somebody else's, such as sharenfs, opens volumes to others.
func (c *Checker) openings(pool, base string, published []string) Finding {
	what := "foreign exports of " + pool
	table, err := c.host.read("var/lib/nfs/etab")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(what, "exportfs -v", "the export table cannot be read: %v", err)
	}
	var list []string
	for _, e := range parseEtab(table) {
		inside := e.path == base || strings.HasPrefix(e.path, base+"/")
		above := strings.HasPrefix(base, strings.TrimSuffix(e.path, "/")+"/") && slices.Contains(e.options, "crossmnt")
		if (inside || above) && !slices.Contains(published, e.path) {
			list = append(list, e.path+" to "+e.client)
		}
	}
	if len(list) > 0 {
		slices.Sort(list)
		return warn(what, "take them from /etc/exports, /etc/exports.d or the dataset's sharenfs, then exportfs -r",
			"not published, and open all the same: %s", some(list))
	}
	return ok(what, "none")
}

type etabLine struct {
	path, client string
	options      []string
}

// parseEtab reads lines of PATH, a tab, and CLIENT(OPTIONS), as nfs-utils writes
// them. What is no such line grants nothing.
func parseEtab(table string) []etabLine {
	var list []etabLine
	for line := range strings.Lines(table) {
		path, rest, found := strings.Cut(strings.TrimSpace(line), "\t")
		client, options, found2 := strings.Cut(rest, "(")
		if found && found2 {
			list = append(list, etabLine{path: unescape(path), client: client, options: strings.Split(strings.TrimSuffix(options, ")"), ",")})
		}
	}
	return list
}

// unescape reads a backslash and three octal digits as the byte that they are.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
