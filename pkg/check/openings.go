package check

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/octal"
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
			list = append(list, etabLine{path: octal.Unescape(path), client: client, options: strings.Split(strings.TrimSuffix(options, ")"), ",")})
		}
	}
	return list
}
