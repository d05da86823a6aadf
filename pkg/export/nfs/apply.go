package nfs

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// apply makes mountd's table hold exactly the wanted clients for the path: one
// child for all that is added or changed with the same options, one for all
// that is removed, none when nothing is to do. exportfs exits with 0 for what
// it could not do, and with 1 where a zfs command was faster, so the table alone
// tells. before is the volume's file as it was.
func (e *Exporter) apply(ctx context.Context, source string, wanted []client, before exportFile) error {
	table, err := readEtab(e.paths.Etab)
	if err != nil {
		return err
	}
	e.warnAbove(table, source)
	add, drop := table.difference(source, wanted)
	if len(add) == 0 && len(drop) == 0 {
		return nil
	}
	if err := e.settle(ctx, source); err != nil {
		return err
	}
	var complaints error
	if len(drop) > 0 {
		args := []string{"-u"}
		for _, host := range drop {
			args = append(args, hostPath(host, source))
		}
		_, err := e.exportfs(ctx, args...)
		complaints = errors.Join(complaints, err)
		// It also takes whatever else resolves to the same name: of a node with two
		// addresses, the one that stays (matchhostname in nfs-utils).
		if table, err = readEtab(e.paths.Etab); err != nil {
			return err
		}
		add, _ = table.difference(source, wanted)
	}
	for _, group := range byOptions(add) {
		args := []string{"-o", group[0].options.String()}
		for _, c := range group {
			args = append(args, hostPath(c.addr.String(), source))
		}
		_, err := e.exportfs(ctx, args...)
		complaints = errors.Join(complaints, err)
	}
	// Somebody else's entry may come from a file, and be back with the next zfs
	// command.
	foreign := slices.ContainsFunc(drop, func(host string) bool { return !before.has(host) })
	if foreign {
		_, err := e.exportfs(ctx, "-r")
		complaints = errors.Join(complaints, err)
	}
	if table, err = readEtab(e.paths.Etab); err != nil {
		return err
	}
	add, drop = table.difference(source, wanted)
	switch {
	case len(add) == 0 && len(drop) == 0:
		return nil
	case len(drop) > 0 && foreign:
		return fault.New(fault.Precondition, "%s is exported to %s by a file of the host: remove it from /etc/exports and %s",
			source, strings.Join(drop, ", "), e.paths.ExportsDir)
	case complaints != nil:
		return fault.New(fault.Unavailable, "export %s: %w", source, complaints)
	}
	return fault.New(fault.Unavailable, "exportfs did not do what it was told for %s: still to add %v, to remove %v", source, add, drop)
}

func (e *Exporter) exportfs(ctx context.Context, args ...string) ([]byte, error) {
	return e.run.Run(ctx, run.Cmd{Tool: "exportfs", Args: args})
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
