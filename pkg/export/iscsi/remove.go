package iscsi

import (
	"errors"
	"path"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// remove takes down everything under the volume's names, from any state, in
// the order in which the kernel lets go. Under our own target's name all is
// ours; a backstore of somebody else that it maps loses the link and nothing
// more.
func (t tree) remove(n names) error {
	groups, err := t.list(n.target, configfs.Directory, "tpgt_")
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := t.removeGroup(path.Join(n.target, g.Name)); err != nil {
			return err
		}
	}
	if err := t.rmdir(n.target); err != nil {
		return err
	}
	if err := t.removeBackstore(n); err != nil {
		return err
	}
	err = t.rmdir(n.hba)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY) {
		return nil // other volumes are in it
	}
	return err
}

func (t tree) removeGroup(tpg string) error {
	enabled, err := t.read(path.Join(tpg, "enable"))
	if err != nil {
		return err
	}
	if enabled == "1" {
		if err := t.write(path.Join(tpg, "enable"), "0"); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		dir    string
		remove func(string) error
	}{
		{"acls", t.removeACL},
		{"lun", t.removeLUN},
		{"np", t.rmdir},
	} {
		dir := path.Join(tpg, part.dir)
		entries, err := t.list(dir, configfs.Directory, "")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := part.remove(path.Join(dir, e.Name)); err != nil {
				return err
			}
		}
	}
	return t.rmdir(tpg)
}

func (t tree) removeBackstore(n names) error {
	err := t.rmdir(n.backstore)
	if errors.Is(err, syscall.EBUSY) {
		return fault.New(fault.Precondition, "backstore %s is mapped by a target that is not this volume's: remove that first: %w", n.backstore, err)
	}
	return err
}
