package iscsi

import (
	"path"
	"slices"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// removeACLs takes away every ACL that is not exactly a wanted one. The kernel
// drops its session with it, at once.
func (t tree) removeACLs(w wanted, s state) error {
	for _, a := range s.acls {
		if slices.Contains(w.acls, a) {
			continue
		}
		if err := t.removeACL(w.acl(a.initiator)); err != nil {
			return err
		}
	}
	return nil
}

// removeACL takes down an ACL from any state.
func (t tree) removeACL(dir string) error {
	luns, err := t.list(dir, configfs.Directory, "lun_")
	if err != nil {
		return err
	}
	for _, l := range luns {
		if err := t.removeLUN(path.Join(dir, l.Name)); err != nil {
			return err
		}
	}
	return t.rmdir(dir)
}

// removeLUN removes a LUN, of a portal group or of an ACL, with its link.
func (t tree) removeLUN(dir string) error {
	links, err := t.list(dir, configfs.Link, "")
	if err != nil {
		return err
	}
	for _, l := range links {
		if err := t.unlink(path.Join(dir, l.Name)); err != nil {
			return err
		}
	}
	return t.rmdir(dir)
}

// removeLUNs removes the LUNs of the portal group that are not ours, after the
// ACLs that could map them.
func (t tree) removeLUNs(w wanted, s state) error {
	for _, l := range s.luns {
		if l.name == lunDir {
			continue
		}
		if err := t.removeLUN(path.Join(w.tpg, "lun", l.name)); err != nil {
			return err
		}
	}
	return nil
}

// addACLs makes the ACLs that are not there.
func (t tree) addACLs(w wanted, s state) error {
	protect := "0" // what ensureGroup has left
	for _, a := range w.acls {
		if slices.Contains(s.acls, a) {
			continue
		}
		if err := t.addACL(w, a, &protect); err != nil {
			return err
		}
	}
	return t.setProtect(w, "0", &protect)
}

// addACL makes an ACL: credentials first, and the LUN last, so that a node that
// gets in before the end finds no disk. protect is the group's
// prod_mode_write_protect, which makes a read-only LUN read-only from its first
// moment; write_protect could be set only after the link.
func (t tree) addACL(w wanted, a aclState, protect *string) error {
	dir := w.acl(a.initiator)
	if err := t.mkdir(dir); err != nil {
		return err
	}
	for _, v := range []struct{ file, value string }{
		{"userid", a.chap.User},
		{"password", a.chap.Password},
		{"userid_mutual", a.chap.MutualUser},
		{"password_mutual", a.chap.MutualPassword},
	} {
		if v.value == "" {
			continue
		}
		if err := t.write(path.Join(dir, "auth", v.file), v.value); err != nil {
			return err
		}
	}
	if err := t.mkdir(path.Join(dir, lunDir)); err != nil {
		return err
	}
	if err := t.setProtect(w, a.protect, protect); err != nil {
		return err
	}
	return t.symlink(w.lun, path.Join(dir, lunDir, lunDir))
}

func (t tree) setProtect(w wanted, value string, now *string) error {
	if *now == value {
		return nil
	}
	if err := t.write(path.Join(w.tpg, "attrib", protectAttribute), value); err != nil {
		return err
	}
	*now = value
	return nil
}
