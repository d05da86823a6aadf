package nfs

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// apply makes mountd's table hold exactly the wanted clients for the path, with
// one child, or none when nothing is to do. exportfs exits with 0 for what it
// could not do, and with 1 where a zfs command was faster, so the table alone
// tells. before is the volume's file as it was.
func (e *Exporter) apply(ctx context.Context, source string, wanted []client, before exportFile) error {
	var complaint error
	foreign := false
	// exportfs -u also takes what resolves to the same name: of a node with two
	// addresses, the one that stays (matchhostname in nfs-utils). So twice.
	for range 2 {
		table, err := e.tables.read(e.paths.Etab)
		if err != nil {
			return err
		}
		e.warnAbove(table, source)
		add, drop := table.difference(source, wanted)
		if len(add) == 0 && len(drop) == 0 {
			return nil
		}
		// Somebody else's entry may come from a file, and would be back with the
		// next zfs command.
		foreign = slices.ContainsFunc(drop, func(host string) bool { return !before.has(host) })
		if complaint = e.commit(ctx, &job{source: source, add: add, drop: drop, reread: foreign}); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	table, err := e.tables.read(e.paths.Etab)
	if err != nil {
		return err
	}
	add, drop := table.difference(source, wanted)
	switch {
	case len(add) == 0 && len(drop) == 0:
		return nil
	case len(drop) > 0 && foreign:
		return fault.New(fault.Precondition, "%s is exported to %s by a file of the host: remove it from /etc/exports and %s",
			source, strings.Join(drop, ", "), e.paths.ExportsDir)
	case complaint != nil:
		return fault.New(fault.Unavailable, "export %s: %w", source, complaint)
	}
	return fault.New(fault.Unavailable, "exportfs did not do what it was told for %s: still to add %v, to remove %v", source, add, drop)
}

// warnAbove logs, once, that somebody's export of a directory above opens the
// path too: nothing that is done to the path itself closes that.
func (e *Exporter) warnAbove(table etab, source string) {
	for _, entry := range table.above(source) {
		e.mu.Lock()
		known := e.warned[entry]
		e.warned[entry] = true
		e.mu.Unlock()
		if !known {
			e.log.WithField("export", entry).Warn("an export with crossmnt opens every volume below it, published or not: take crossmnt from it")
		}
	}
}
