package iscsi

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// faults says what a target lacks, whatever grants it is to have; nothing when
// it is complete. The texts hold no secret.
func (s state) faults(n names) []string {
	var list []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	b := s.backstore
	add(!b.exists, "the backstore is missing")
	add(b.exists && !b.enabled, "the backstore is not enabled")
	add(b.exists && b.serial != n.uuid, "the serial is not the volume's")
	add(b.exists && b.emulateTPU != "1", "discard is off")
	add(len(s.otherGroups) > 0, "there are other portal groups")
	if !s.group {
		return append(list, "the portal group is missing")
	}
	for _, a := range groupAttributes {
		add(s.attrib[a.name] != a.value, "%s is %q", a.name, s.attrib[a.name])
	}
	add(s.lun() != n.backstore, "LUN %d does not map the backstore", LUN)
	add(len(s.luns) > 1, "there are other LUNs")
	add(len(s.portals) == 0, "there is no portal")
	add(len(s.acls) == 0, "there is no ACL")
	for _, a := range s.acls {
		add(a.target != n.lun || a.protect == "" || a.extra != "", "the ACL of %s is not complete", a.initiator)
	}
	add(!s.enabled, "the target is not enabled")
	return list
}

// verify reads the target back and compares it with all that is wanted.
func (t tree) verify(w wanted) error {
	list, err := t.differences(w)
	if err == nil && len(list) > 0 {
		err = fault.New(fault.Unavailable, "target %s was changed by somebody else meanwhile (%s): repeat the call", w.iqn, strings.Join(list, ", "))
	}
	return err
}

// differences says in what the target is not all that is wanted, and no more.
func (t tree) differences(w wanted) ([]string, error) {
	s, err := t.state(w.names)
	if err != nil {
		return nil, err
	}
	list := s.faults(w.names)
	if !s.backstore.serves(w) {
		list = append(list, "the backstore has not the volume's device")
	}
	if s.backstore.udevPath != w.source {
		list = append(list, "the backstore names another path")
	}
	if s.attrib["authentication"] != w.authentication {
		list = append(list, "authentication is not "+w.authentication)
	}
	if !slices.Equal(s.addresses(), w.portals) {
		list = append(list, "the portals differ")
	}
	found := slices.SortedFunc(slices.Values(s.acls), aclState.compare)
	if !slices.Equal(found, slices.SortedFunc(slices.Values(w.acls), aclState.compare)) {
		list = append(list, "the ACLs differ")
	}
	return list, nil
}

func (a aclState) compare(b aclState) int { return strings.Compare(a.initiator, b.initiator) }

// addresses returns the portals in order.
func (s state) addresses() []netip.AddrPort {
	list := make([]netip.AddrPort, 0, len(s.portals))
	for _, p := range s.portals {
		list = append(list, p.portal)
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return list
}
