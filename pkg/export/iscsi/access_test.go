package iscsi

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs/fake"
)

// attempts are the ways in which somebody may come: every node with every
// credentials that a test gives to anybody, and strangers.
func attempts() (list []attempt) {
	for _, node := range []string{"a", "b", "stranger"} {
		list = append(list, attempt{initiator(node), chap.Credentials{}})
		for _, g := range []export.Grant{chapA, chapOther, chapB} {
			list = append(list, attempt{initiator(node), *g.CHAP})
		}
	}
	return list
}

type attempt struct {
	initiator string
	chap      chap.Credentials
}

// allowed reports whether one of the grants lets the attempt read and write.
func (a attempt) allowed(list []export.Grant) (read, write bool) {
	for _, g := range list {
		if g.Initiator != a.initiator || g.CHAP != nil && (g.CHAP.User != a.chap.User || g.CHAP.Password != a.chap.Password) {
			continue
		}
		read, write = true, write || !g.ReadOnly
	}
	return read, write
}

// excess says what somebody reaches beyond the grants.
func excess(f *fake.FS, n names, list []export.Grant) error {
	for _, a := range attempts() {
		disks, ok := f.Try(n.iqn, a.initiator, a.chap.User, a.chap.Password)
		if !ok {
			continue
		}
		read, write := a.allowed(list)
		for lun, d := range disks {
			if !read || !write && !d.ReadOnly {
				return fmt.Errorf("%s as %q reaches %s, read-only %v", a.initiator, a.chap.User, lun, d.ReadOnly)
			}
			if lun != lunDir || d.Serial != n.uuid {
				return fmt.Errorf("%s is LUN %s with serial %q", d.Device, lun, d.Serial)
			}
		}
	}
	return nil
}

// missing says what a grant does not reach.
func missing(f *fake.FS, n names, list []export.Grant) error {
	strict := false // with any CHAP, nobody gets in without
	for _, g := range list {
		strict = strict || g.CHAP != nil
	}
	for _, g := range list {
		c := chap.Credentials{}
		if g.CHAP != nil {
			c = *g.CHAP
		}
		disks, _ := f.Try(n.iqn, g.Initiator, c.User, c.Password)
		d, ok := disks[lunDir]
		if want := g.CHAP != nil || !strict; ok != want || ok && d.ReadOnly != g.ReadOnly {
			return fmt.Errorf("%s with %v: %v, read-only %v", g.Initiator, c, ok, d.ReadOnly)
		}
	}
	return nil
}

// At every operation of every change, also one that fails and one that is the
// last, nobody reaches more than what the old and the new grants give.
func TestNobodyReachesMoreThanGranted(t *testing.T) {
	h := fakeHost(t)
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	i := h.instanceWith(t, "a", func(c *Config) { c.Log = quiet })
	v := h.volume(t, 1)
	n := i.names(v.UUID)
	for _, from := range sets {
		for _, to := range sets {
			both := append(append([]export.Grant{}, from.grants...), to.grants...)
			// Where nothing fails first, then with each change failing once.
			fail := []int{0}
			for first := true; len(fail) > 0; first = false {
				i.ensure(t, grants(v, from.grants...))
				before := i.inject.Operations()
				i.inject.Observe(func(op fake.Op) {
					if op.Name == "read" || op.Name == "list" {
						return
					}
					if first {
						fail = append(fail, i.inject.Operations()-before)
					}
					if err := excess(h.fake, n, both); err != nil {
						t.Fatalf("%s to %s, after %s %s: %v", from.name, to.name, op.Name, op.Path, err)
					}
				})
				if fail[0] > 0 {
					i.inject.FailNth(fail[0], syscall.EIO)
					if i.Ensure(t.Context(), grants(v, to.grants...)) == nil {
						t.Fatalf("%s to %s: operation %d failed and Ensure did not", from.name, to.name, fail[0])
					}
				}
				i.ensure(t, grants(v, to.grants...))
				i.inject.Observe(nil)
				fail = fail[1:]
				if err := errors.Join(excess(h.fake, n, to.grants), missing(h.fake, n, to.grants)); err != nil {
					t.Fatalf("%s to %s: %v", from.name, to.name, err)
				}
			}
		}
	}
}

// A write that fails after the credentials changed must not leave the old ones.
func TestOldCredentialsEndBeforeNewOnesBegin(t *testing.T) {
	h := fakeHost(t)
	i := h.instance(t, "a")
	v := h.volume(t, 1)
	n := i.names(v.UUID)
	i.ensure(t, grants(v, chapA))
	i.inject.Observe(func(op fake.Op) {
		if strings.HasSuffix(op.Path, "/auth/password") && op.Name == "write" {
			if _, ok := h.fake.Try(n.iqn, initiator("a"), credentials.User, credentials.Password); ok {
				t.Error("the old password works beside the new one")
			}
		}
	})
	i.ensure(t, grants(v, chapOther))
	i.inject.Observe(nil)
	if _, ok := h.fake.Try(n.iqn, initiator("a"), credentials.User, credentials.Password); ok {
		t.Error("the old password works")
	}
}

func TestSessionsOfUnchangedGrantsLive(t *testing.T) {
	h := fakeHost(t)
	i := h.instance(t, "a")
	v := h.volume(t, 1)
	n := i.names(v.UUID)
	i.ensure(t, grants(v, chapA, chapB))
	login := func(g export.Grant) *fake.Session {
		t.Helper()
		s := h.fake.Login(n.iqn, g.Initiator, g.CHAP.User, g.CHAP.Password)
		if s == nil {
			t.Fatalf("%s cannot log in", g.Initiator)
		}
		return s
	}
	a, b := login(chapA), login(chapB)
	if list, err := i.Sessions(t.Context(), v.UUID); err != nil || len(list) != 2 || list[0] != initiator("a") || list[1] != initiator("b") {
		t.Fatalf("Sessions: %v, %v", list, err)
	}
	i.ensure(t, grants(v, chapA, chapB))
	more := grants(v, chapB, chapA)
	more.Portals = append(more.Portals, portal6)
	i.ensure(t, more)
	if !a.Alive() || !b.Alive() {
		t.Fatal("a replay or a new portal ended a session")
	}
	i.ensure(t, grants(v, readOnlyA, chapB))
	if a.Alive() || !b.Alive() {
		t.Fatalf("a changed to read-only: alive %v, and the other %v", a.Alive(), b.Alive())
	}
	a = login(readOnlyA)
	if d := a.Disks()[lunDir]; !d.ReadOnly || d.Serial != v.UUID {
		t.Fatalf("read-only grant: %+v", d)
	}
	if d := b.Disks()[lunDir]; d.ReadOnly {
		t.Fatalf("the other grant: %+v", d)
	}
	i.ensure(t, grants(v, readOnlyA))
	if !a.Alive() || b.Alive() {
		t.Fatalf("b unpublished: alive %v, and the other %v", b.Alive(), a.Alive())
	}
	if list, err := i.Sessions(t.Context(), v.UUID); err != nil || len(list) != 1 {
		t.Fatalf("Sessions: %v, %v", list, err)
	}
	i.remove(t, v)
	if a.Alive() {
		t.Fatal("Remove left a session")
	}
}

// Somebody opens the target by hand and gets in; the next Ensure puts them out.
func TestIntrudersEndWithTheRepair(t *testing.T) {
	h := fakeHost(t)
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	i.ensure(t, v)
	must(t, h.fs.Write(n.tpg+"/attrib/authentication", "0"))
	s := h.fake.Login(n.iqn, initiator("a"), "", "")
	if s == nil {
		t.Fatal("the target was not opened")
	}
	i.ensure(t, v)
	if s.Alive() {
		t.Fatal("a session without credentials is still there")
	}
	must(t, h.fs.Write(n.acl(initiator("a"))+"/attrib/authentication", "0"))
	if s = h.fake.Login(n.iqn, initiator("a"), "", ""); s == nil {
		t.Fatal("the ACL was not opened")
	}
	i.ensure(t, v)
	if s.Alive() {
		t.Fatal("a session without credentials is still there")
	}
	if err := excess(h.fake, n, v.Grants); err != nil {
		t.Fatal(err)
	}
}
