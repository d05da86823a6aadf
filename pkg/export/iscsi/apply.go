package iscsi

import (
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// apply brings the target from whatever it is to what is wanted, by the
// difference alone. Access is taken before any is given, and a target whose
// middle is broken is closed while it is repaired.
func (t tree) apply(w wanted) error {
	s, err := t.state(w.names)
	if err != nil {
		return err
	}
	if err := s.refuse(w); err != nil {
		return err
	}
	if s.enabled && !s.sound(w) {
		t.log.WithField("target", w.iqn).Warn("an enabled target was not sound; it is closed while it is repaired")
		if err := t.write(path.Join(w.tpg, "enable"), "0"); err != nil {
			return err
		}
		s.enabled = false
	}
	for _, step := range []func(wanted, state) error{
		t.removeACLs,
		t.removeLUNs,
		t.ensureBackstore,
		t.ensureGroup,
		t.ensureLUN,
		t.addPortals,
		t.setAuthentication,
		t.addACLs,
		t.removePortals,
		t.enable,
	} {
		if err := step(w, s); err != nil {
			return err
		}
	}
	return nil
}

// refuse is fault.Precondition for a target or backstore under our name that
// somebody uses for something else. What nobody can reach is rebuilt instead.
func (s state) refuse(w wanted) error {
	const remedy = "remove it, or unpublish the volume from every node first"
	if len(s.otherGroups) > 0 {
		return fault.New(fault.Precondition, "target %s has other portal groups (%s): %s", w.iqn, strings.Join(s.otherGroups, ", "), remedy)
	}
	for _, l := range s.luns {
		if l.target != "" && l.target != w.backstore {
			return fault.New(fault.Precondition, "target %s maps %s, which is not this volume: %s", w.iqn, l.target, remedy)
		}
		if l.target != "" && !s.backstore.serves(w) {
			return fault.New(fault.Precondition, "target %s maps device %d:%d with serial %q, but the volume is %d:%d with serial %q: %s",
				w.iqn, s.backstore.major, s.backstore.minor, s.backstore.serial, w.device.Major, w.device.Minor, w.uuid, remedy)
		}
	}
	return nil
}

// sound reports whether the target admits only its ACLs, with their
// credentials, and to the volume's device. If not, somebody else has changed it,
// and whoever got in has to go.
func (s state) sound(w wanted) bool {
	if s.lun() != w.backstore || s.attrib["generate_node_acls"] != "0" {
		return false
	}
	return s.attrib["authentication"] == "1" ||
		!slices.ContainsFunc(s.acls, func(a aclState) bool { return a.chap != chap.Credentials{} })
}

// ensureBackstore makes the backstore or completes it. The kernel wants the
// device's path before it is enabled, and the serial before a LUN maps it.
func (t tree) ensureBackstore(w wanted, s state) error {
	b := s.backstore
	if b.enabled && !b.serves(w) {
		// No LUN of ours maps it, see refuse.
		if err := t.removeBackstore(w.names); err != nil {
			return err
		}
		b = backstoreState{}
	}
	if !b.exists {
		if err := t.mkdirShared(w.hba); err != nil {
			return notLoaded(err)
		}
		if err := t.mkdir(w.backstore); err != nil {
			return err
		}
	}
	if !b.enabled {
		if err := t.configureBackstore(w); err != nil {
			return err
		}
	} else if b.udevPath != w.source {
		// The zvol was renamed; it is the same device.
		if err := t.write(path.Join(w.backstore, "udev_path"), w.source); err != nil {
			return err
		}
	}
	if b.emulateTPU == "1" {
		return nil
	}
	return t.write(path.Join(w.backstore, "attrib/emulate_tpu"), "1")
}

func (t tree) configureBackstore(w wanted) error {
	for _, a := range []struct{ file, value string }{
		{"control", "udev_path=" + w.source},
		{"udev_path", w.source},
		{"wwn/vpd_unit_serial", w.uuid},
	} {
		if err := t.write(path.Join(w.backstore, a.file), a.value); err != nil {
			return err
		}
	}
	err := t.write(path.Join(w.backstore, "enable"), "1")
	switch {
	case errors.Is(err, syscall.EBUSY):
		return fault.New(fault.Precondition, "%s is held by something else on this host, such as a mount or another target: free it first: %w", w.source, err)
	case errors.Is(err, restartSys), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return &lateError{fault.New(fault.Unavailable, "%s could not be opened: repeat the call: %w", w.source, err)}
	}
	return err
}

func (t tree) ensureGroup(w wanted, s state) error {
	if !s.exists {
		if err := t.mkdir(w.target); err != nil {
			return notLoaded(err)
		}
	}
	if !s.group {
		if err := t.mkdir(w.tpg); err != nil {
			return err
		}
	}
	for _, a := range groupAttributes {
		if s.attrib[a.name] == a.value {
			continue
		}
		if err := t.write(path.Join(w.tpg, "attrib", a.name), a.value); err != nil {
			return err
		}
	}
	return nil
}

func (t tree) ensureLUN(w wanted, s state) error {
	if s.lun() == w.backstore {
		return nil
	}
	if !slices.ContainsFunc(s.luns, func(l lunState) bool { return l.name == lunDir }) {
		if err := t.mkdir(w.lun); err != nil {
			return err
		}
	}
	return t.symlink(w.backstore, w.lunLink)
}

func (t tree) addPortals(w wanted, s state) error {
	have := s.addresses()
	for _, p := range w.portals {
		if slices.Contains(have, p) {
			continue
		}
		err := t.mkdir(path.Join(w.tpg, "np", p.String()))
		if errors.Is(err, syscall.EINVAL) {
			// The kernel has one errno for all; the name is right.
			return fault.New(fault.Unavailable, "portal %s cannot be opened: see that nothing else listens there, nor at every address: %w", p, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t tree) removePortals(w wanted, s state) error {
	for _, p := range s.portals {
		if slices.Contains(w.portals, p.portal) {
			continue
		}
		if err := t.rmdir(path.Join(w.tpg, "np", p.name)); err != nil {
			return err
		}
	}
	return nil
}

// setAuthentication comes after the ACLs that go and before those that come, so
// that no ACL with credentials is ever reached without.
func (t tree) setAuthentication(w wanted, s state) error {
	if s.attrib["authentication"] == w.authentication {
		return nil
	}
	return t.write(path.Join(w.tpg, "attrib/authentication"), w.authentication)
}

func (t tree) enable(w wanted, s state) error {
	if s.enabled {
		return nil
	}
	return t.write(path.Join(w.tpg, "enable"), "1")
}

// notLoaded turns the errno of a missing fabric or backend module into
// fault.Unavailable.
func notLoaded(err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODEV) {
		return fault.New(fault.Unavailable, "the kernel's iSCSI target is not ready (modules %s): %w", strings.Join(modules, ", "), err)
	}
	return err
}
