package iscsi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// breakage is a change to a complete target by somebody else.
type breakage struct {
	name string
	do   func() error
	// hidden ones do not keep List from calling it complete: only the grants
	// tell that they are wrong.
	hidden bool
}

// breakages are for a target with chapA and readOnlyB.
func (h *host) breakages(n names) []breakage {
	write := func(p, value string) func() error { return func() error { return h.fs.Write(p, value) } }
	both := func(calls ...func() error) func() error {
		return func() error {
			for _, call := range calls {
				if err := call(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	mkdir := func(p string) func() error { return func() error { return h.fs.Mkdir(p) } }
	rmdir := func(p string) func() error { return func() error { return h.fs.Rmdir(p) } }
	unlink := func(p string) func() error { return func() error { return h.fs.Unlink(p) } }
	link := func(target, p string) func() error { return func() error { return h.fs.Symlink(target, p) } }

	a, b := n.acl(initiator("a")), n.acl(initiator("b"))
	stranger := n.acl(initiator("stranger"))
	lun0 := n.tpg + "/lun/lun_0"
	attrib := n.tpg + "/attrib/"
	unmap := unlink(n.lunLink)
	return []breakage{
		{"disabled", write(n.tpg+"/enable", "0"), false},
		{"authentication off", write(attrib+"authentication", "0"), true},
		{"demo mode", write(attrib+"generate_node_acls", "1"), false},
		{"discovery", write(attrib+"demo_mode_discovery", "1"), false},
		{"protecting", write(attrib+protectAttribute, "1"), false},
		{"no discard", write(n.backstore+"/attrib/emulate_tpu", "0"), false},
		{"password", write(a+"/auth/password", "x"), true},
		{"user", write(a+"/auth/userid", "x"), true},
		{"unset", write(a+"/auth/password", "NULL"), true},
		{"mutual user", write(a+"/auth/userid_mutual", "x"), true},
		{"mutual password", write(a+"/auth/password_mutual", "x"), true},
		{"an ACL's own switch", write(a+"/attrib/authentication", "0"), true},
		{"writable", write(b+"/lun_1/write_protect", "0"), true},
		{"protected", write(a+"/lun_1/write_protect", "1"), true},
		{"ACL without LUN", both(unlink(a+"/lun_1/lun_1"), rmdir(a+"/lun_1")), false},
		{"ACL without link", unlink(a + "/lun_1/lun_1"), false},
		{"ACL with another LUN", both(mkdir(a+"/lun_2"), link(n.lun, a+"/lun_2/x")), false},
		{"ACL with an empty LUN", mkdir(a + "/lun_0"), false},
		{"no ACL", both(unlink(a+"/lun_1/lun_1"), rmdir(a+"/lun_1"), rmdir(a)), true},
		{"stranger", mkdir(stranger), false},
		{"stranger with the LUN", both(mkdir(stranger), mkdir(stranger+"/lun_1"), link(n.lun, stranger+"/lun_1/x")), true},
		{"no portal", rmdir(n.tpg + "/np/" + portal4.String()), false},
		{"another portal", mkdir(n.tpg + "/np/" + portal6.String()), true},
		{"LUN 0", both(mkdir(lun0), link(n.backstore, lun0+"/x")), false},
		{"LUN 0 in an ACL", both(mkdir(lun0), link(n.backstore, lun0+"/x"), mkdir(a+"/lun_0"), link(lun0, a+"/lun_0/x")), false},
		{"ACL's LUN on LUN 0", both(mkdir(lun0), link(n.backstore, lun0+"/x"), unlink(a+"/lun_1/lun_1"), link(lun0, a+"/lun_1/lun_1")), false},
		{"LUN without backstore", unmap, false},
		{"LUN made again by hand", both(unmap, link(n.backstore, n.lunLink)), false},
		{"backstore made again by hand", both(unmap, rmdir(n.backstore), mkdir(n.backstore)), false},
		{"no backstore", both(unmap, rmdir(n.backstore), rmdir(n.hba)), false},
	}
}

func testRepair(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA, readOnlyB)
	n := i.names(v.UUID)
	i.ensure(t, v)
	want := h.view(t)
	for _, b := range h.breakages(n) {
		must(t, b.do())
		if list, err := i.List(t.Context()); err != nil || len(list) != 1 || list[0].Complete != b.hidden {
			t.Errorf("%s: List says %+v, %v", b.name, list, err)
		}
		if err := i.Ensure(t.Context(), v); err != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
		sameView(t, b.name, want, h.view(t))
	}
	// A zvol that was renamed is the same device; the kernel's note follows.
	must(t, h.fs.Write(n.backstore+"/udev_path", "/dev/zvol/other"))
	i.ensure(t, v)
	sameView(t, "udev_path", want, h.view(t))
	i.remove(t, v)
}

// testReadBack has somebody change the target right after Ensure has made it, in
// the short form in every third way.
func testReadBack(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA, readOnlyB)
	n := i.names(v.UUID)
	i.ensure(t, v)
	for k, b := range h.breakages(n) {
		if testing.Short() && k%3 > 0 {
			continue
		}
		i.remove(t, v)
		i.inject.Observe(func(op fakeOp) {
			if op.Name == "write" && op.Path == n.tpg+"/enable" {
				must(t, b.do())
			}
		})
		err := i.Ensure(t.Context(), v)
		i.inject.Observe(nil)
		if !errors.Is(err, fault.Unavailable) {
			t.Errorf("%s: Ensure says %v", b.name, err)
		}
		i.ensure(t, v)
	}
	i.remove(t, v)
}

// testUnsound looks that sessions which may not be there end before the rest
// goes on: the target is disabled first, and enabled last.
func testUnsound(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	i.ensure(t, v)
	enable := "write " + n.tpg + "/enable"
	for _, c := range []struct {
		name, change string
		open         func() error
	}{
		{"anybody may come", "write " + n.tpg + "/attrib/generate_node_acls",
			func() error { return h.fs.Write(n.tpg+"/attrib/generate_node_acls", "1") }},
		{"anybody may use the ACL's name", "write " + n.tpg + "/attrib/authentication",
			func() error { return h.fs.Write(n.tpg+"/attrib/authentication", "0") }},
		{"there is no disk", "symlink " + n.lunLink,
			func() error { return h.fs.Unlink(n.lunLink) }},
	} {
		must(t, c.open())
		changes := i.changes(t, func() { i.ensure(t, v) })
		if len(changes) < 3 || changes[0] != enable || changes[len(changes)-1] != enable || !slices.Contains(changes, c.change) {
			t.Errorf("%s: %v", c.name, changes)
		}
	}
	i.remove(t, v)
}

func testPortals(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	i.ensure(t, v)
	np := n.tpg + "/np/"
	second := netip.AddrPortFrom(portal4.Addr(), portal4.Port()+1)
	for _, step := range []struct {
		portals []netip.AddrPort
		want    []string
	}{
		{[]netip.AddrPort{portal4, portal6}, []string{"mkdir " + np + "[::1]:3266"}},
		{[]netip.AddrPort{portal6, portal4, portal6}, nil},
		{[]netip.AddrPort{portal6, second}, []string{"mkdir " + np + second.String(), "rmdir " + np + portal4.String()}},
		{[]netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom16(portal4.Addr().As16()), portal4.Port())},
			[]string{"mkdir " + np + portal4.String(), "rmdir " + np + second.String(), "rmdir " + np + "[::1]:3266"}},
	} {
		v.Portals = step.portals
		changes := i.changes(t, func() { i.ensure(t, v) })
		if diff := cmp.Diff(step.want, changes); diff != "" {
			t.Errorf("%v:\n%s", step.portals, diff)
		}
	}
	i.remove(t, v)
}

func testPortalTaken(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	free := h.listen(t, portal4.String())
	err := i.Ensure(t.Context(), v)
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), portal4.String()) {
		t.Errorf("Ensure: %v", err)
	}
	if enabled, _ := h.fs.Read(i.names(v.UUID).tpg + "/enable"); enabled != "0" {
		t.Errorf("enable is %q", enabled)
	}
	free()
	i.ensure(t, v)
	i.remove(t, v)
}

// testOthersKept changes one node's grant in every way and looks that nothing
// else is touched.
func testOthersKept(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := h.volume(t, 1)
	n := i.names(v.UUID)
	i.ensure(t, grants(v, chapA, chapB))
	renamed := chapA
	renamed.Initiator = initiator("a2")
	for _, g := range []export.Grant{chapOther, mutualA, readOnlyA, renamed, chapA} {
		changes := i.changes(t, func() { i.ensure(t, grants(v, g, chapB)) })
		if len(changes) == 0 {
			t.Error("nothing was changed")
		}
		for _, c := range changes {
			_, p, _ := strings.Cut(c, " ")
			if !strings.HasPrefix(p, n.acl(initiator("a"))) && p != n.tpg+"/attrib/"+protectAttribute {
				t.Errorf("touched: %s", c)
			}
		}
	}
	i.remove(t, v)
}

// testCutOff kills an Ensure or a Remove at every operation; the next call must
// come to the same end as one that was never cut off. The short form takes every
// ninth operation.
func testCutOff(t *testing.T, h *host) {
	every := 1
	if testing.Short() {
		every = 9
	}
	i := h.instance(t, "a")
	v := h.volume(t, 1)
	empty := h.view(t)
	from, to := grants(v, openA, chapB), grants(v, mutualA, readOnlyB)
	to.Portals = []netip.AddrPort{portal6}
	i.ensure(t, to)
	want := h.view(t)
	i.remove(t, v)
	for _, c := range []struct {
		name    string
		prepare func()
		call    func(ctx context.Context) error
	}{
		{"Ensure from nothing", func() {}, func(ctx context.Context) error { return i.Ensure(ctx, to) }},
		{"Ensure from other grants", func() { i.ensure(t, from) }, func(ctx context.Context) error { return i.Ensure(ctx, to) }},
		{"Remove", func() { i.ensure(t, to) }, func(ctx context.Context) error { return i.Remove(ctx, v.UUID) }},
	} {
		for k := 0; ; k += every {
			c.prepare()
			i.inject.CutAfter(k)
			err := c.call(t.Context())
			i.inject.Heal()
			i.ensure(t, to)
			sameView(t, fmt.Sprintf("%s cut off after %d operations, then Ensure", c.name, k), want, h.view(t))
			i.remove(t, v)

			c.prepare()
			i.inject.CutAfter(k)
			_ = c.call(t.Context())
			i.inject.Heal()
			i.remove(t, v)
			sameView(t, fmt.Sprintf("%s cut off after %d operations, then Remove", c.name, k), empty, h.view(t))
			if err == nil {
				break
			}
		}
	}
}
