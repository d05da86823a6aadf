package iscsi

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// List implements export.Exporter. A backstore of ours without a target is in
// it, not complete. The volumes are sorted by uuid. It takes no lock: a volume
// that changes meanwhile may show as not complete.
func (e *Exporter) List(ctx context.Context) ([]export.Status, error) {
	t := e.tree(ctx)
	mark := markOf(e.naming)
	uuids := map[string]bool{}
	targets, err := t.list(fabricDir, configfs.Directory, "")
	if err != nil {
		return nil, err
	}
	for _, d := range targets {
		if uuid, ok := e.naming.UUID(d.Name); ok {
			uuids[uuid] = true
		}
	}
	backstores, err := t.list(mark.hba(), configfs.Directory, mark.prefix())
	if err != nil {
		return nil, err
	}
	for _, d := range backstores {
		if uuid, ok := mark.backstoreUUID(d.Name); ok {
			uuids[uuid] = true
		}
	}
	list := make([]export.Status, 0, len(uuids))
	for _, uuid := range slices.Sorted(maps.Keys(uuids)) {
		st, _, err := e.look(t, uuid)
		if err != nil {
			return nil, err
		}
		list = append(list, st)
	}
	return list, nil
}

// Look implements export.Exporter. It takes no lock, like List.
func (e *Exporter) Look(ctx context.Context, uuid string) (export.Status, bool, error) {
	return e.look(e.tree(ctx), uuid)
}

func (e *Exporter) look(t tree, uuid string) (export.Status, bool, error) {
	n := e.names(uuid)
	s, err := t.state(n)
	if err != nil {
		return export.Status{}, false, err
	}
	st := export.Status{UUID: uuid, Complete: len(s.faults(n)) == 0, Clients: s.clients()}
	return st, s.exists || s.backstore.exists, nil
}

// clients returns the initiators that reach the LUN, sorted.
func (s state) clients() []string {
	var list []string
	for _, a := range s.acls {
		if a.protect != "" {
			list = append(list, a.initiator)
		}
	}
	slices.Sort(list)
	return list
}

// Sessions returns the initiators that are logged in to the volume now, sorted.
// A volume that is not exported has none.
func (e *Exporter) Sessions(ctx context.Context, uuid string) ([]string, error) {
	if !ident.ValidUUID(uuid) {
		return nil, fault.New(fault.Invalid, "%q is no volume's uuid", ident.Printable(uuid))
	}
	n := e.names(uuid)
	t := e.tree(ctx)
	acls, err := t.list(path.Join(n.tpg, "acls"), configfs.Directory, "")
	if err != nil {
		return nil, err
	}
	var list []string
	for _, a := range acls {
		info, err := t.read(path.Join(n.acl(a.Name), "info"))
		if err != nil {
			return nil, err
		}
		// lio_target_nacl_info_show in drivers/target/iscsi/iscsi_target_configfs.c.
		if strings.HasPrefix(info, "InitiatorName: ") {
			list = append(list, a.Name)
		}
	}
	slices.Sort(list)
	return list, nil
}

// Others lists the targets that are not of this instance, with the devices that
// they map. It takes no lock, like List.
func (e *Exporter) Others(ctx context.Context) ([]export.Other, error) {
	t := e.tree(ctx)
	targets, err := t.list(fabricDir, configfs.Directory, "")
	if err != nil {
		return nil, err
	}
	var list []export.Other
	for _, d := range targets {
		if _, ours := e.naming.UUID(d.Name); ours || !validInitiator(strings.ToLower(d.Name)) {
			continue // discovery_auth is none, too
		}
		source, err := t.deviceOf(path.Join(fabricDir, d.Name))
		if err != nil {
			return nil, err
		}
		list = append(list, export.Other{Name: d.Name, Source: source})
	}
	return list, nil
}

// deviceOf returns the first device that a target maps, or "".
func (t tree) deviceOf(target string) (string, error) {
	groups, err := t.list(target, configfs.Directory, "tpgt_")
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		dir := path.Join(target, g.Name, "lun")
		luns, err := t.list(dir, configfs.Directory, "lun_")
		if err != nil {
			return "", err
		}
		for _, l := range luns {
			backstore, err := t.linkTarget(path.Join(dir, l.Name))
			if err != nil {
				return "", err
			}
			if backstore == "" {
				continue
			}
			device, err := t.read(path.Join(backstore, "udev_path"))
			if err != nil || device != "" {
				return device, err
			}
		}
	}
	return "", nil
}
