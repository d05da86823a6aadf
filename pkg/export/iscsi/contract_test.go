package iscsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// contract is what an Exporter promises, on the fake and in the guest.
var contract = []struct {
	name string
	test func(t *testing.T, h *host)
}{
	{"publish and replay", testPublish},
	{"unpublish the last node", testUnpublish},
	{"every step from one set of grants to another", testTransitions},
	{"nothing is left of a removed volume", testRemove},
	{"volumes are apart", testTwoVolumes},
	{"list", testList},
	{"C05 target names are lower case", testLowerCase},
	{"C10 many Ensures and Removes at once", testConcurrent},
	{"C22 a failed write leaves the target closed and no password behind", testFailedWrites},
	{"C23 the serial is the volume's uuid and never changes", testSerial},
	{"C44 an orphan backstore is removed", testOrphan},
	{"C44 the backstore's removal fails once", testBackstoreBusy},
	{"C56 a target of our name on another device", testForeignDevice},
	{"C56 a target of our name with another serial", testForeignSerial},
	{"C56 a target of our name on a foreign backstore", testForeignBackstore},
	{"an unreachable backstore of ours on another device is rebuilt", testStaleBackstore},
	{"a foreign target on our backstore", testForeignTarget},
	{"a device that something else holds", testHeldDevice},
	{"C13 a device that cannot be opened at once is tried again", testLateDevice},
	{"foreign targets are untouched", testForeignUntouched},
	{"two instances", testTwoInstances},
	{"what somebody changed is repaired", testRepair},
	{"C04 what the kernel has is read back before OK", testReadBack},
	{"an opened target is closed for its repair", testUnsound},
	{"portals are added and removed alone", testPortals},
	{"a portal where another process listens", testPortalTaken},
	{"an ACL replaced leaves the others", testOthersKept},
	{"cut off at each operation", testCutOff},
}

func testContract(t *testing.T, newHost func(t *testing.T) *host) {
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			empty := h.view(t)
			c.test(t, h)
			if !t.Failed() {
				sameView(t, "left behind", empty, h.view(t))
			}
		})
	}
}

func TestContractOnFake(t *testing.T) { testContract(t, fakeHost) }

// ensure fails the test when v cannot be exported.
func (i *instance) ensure(t *testing.T, v export.Volume) {
	t.Helper()
	if err := i.Ensure(t.Context(), v); err != nil {
		t.Fatalf("Ensure: %v", err)
	}
}

func (i *instance) remove(t *testing.T, v export.Volume) {
	t.Helper()
	if err := i.Remove(context.WithoutCancel(t.Context()), v.UUID); err != nil { // also at the test's end
		t.Fatalf("Remove: %v", err)
	}
}

// must fails the test when a preparation was refused.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("preparation: %v", err)
	}
}

func testPublish(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	i.ensure(t, v)
	acl := n.acl(initiator("a"))
	for file, want := range map[string]string{
		n.tpg + "/enable":                         "1",
		n.tpg + "/attrib/authentication":          "1",
		n.tpg + "/attrib/generate_node_acls":      "0",
		n.tpg + "/attrib/demo_mode_discovery":     "0",
		n.tpg + "/attrib/prod_mode_write_protect": "0",
		n.backstore + "/enable":                   "1",
		n.backstore + "/udev_path":                v.Source,
		n.backstore + "/attrib/emulate_tpu":       "1",
		n.backstore + "/wwn/vpd_unit_serial":      serialLabel + v.UUID,
		acl + "/auth/userid":                      credentials.User,
		acl + "/auth/password":                    credentials.Password,
		acl + "/auth/userid_mutual":               "",
		acl + "/lun_1/write_protect":              "0",
	} {
		if got, err := h.fs.Read(file); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", file, got, err, want)
		}
	}
	before := h.view(t)
	changes := i.changes(t, func() { i.ensure(t, v) })
	if len(changes) > 0 {
		t.Errorf("the replay changed something: %v", changes)
	}
	sameView(t, "after the replay", before, h.view(t))
	i.remove(t, v)
}

// changes returns the operations of fn that are more than looking.
func (i *instance) changes(t *testing.T, fn func()) []string {
	t.Helper()
	var list []string
	i.inject.Observe(func(op fakeOp) {
		if op.Name != "read" && op.Name != "list" {
			list = append(list, op.Name+" "+op.Path)
		}
	})
	defer i.inject.Observe(nil)
	fn()
	return list
}

func testUnpublish(t *testing.T, h *host) {
	i := h.instance(t, "a")
	empty := h.view(t)
	v := h.volume(t, 1)
	i.ensure(t, grants(v, chapA, openB))
	i.ensure(t, grants(v, openB))
	i.ensure(t, v)
	sameView(t, "without a grant", empty, h.view(t))
	i.ensure(t, v)
}

// sets are what a volume's grants can be.
var sets = []struct {
	name   string
	grants []export.Grant
}{
	{"nobody", nil},
	{"open", []export.Grant{openA}},
	{"chap", []export.Grant{chapA}},
	{"other password", []export.Grant{chapOther}},
	{"mutual", []export.Grant{mutualA}},
	{"read-only", []export.Grant{readOnlyA}},
	{"other node", []export.Grant{chapB}},
	{"two nodes", []export.Grant{chapA, chapB}},
	{"mixed", []export.Grant{openA, chapB}},
	{"two nodes, one read-only", []export.Grant{chapA, readOnlyB}},
}

// testTransitions goes from every set of grants to every other, and compares
// with a target that was made for the second from nothing. The short form has
// each once as the one before and once as the one after.
func testTransitions(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := h.volume(t, 1)
	views := make([][]string, len(sets))
	for k, s := range sets {
		i.ensure(t, grants(v, s.grants...))
		views[k] = h.view(t)
		i.remove(t, v)
	}
	for j, from := range sets {
		for k, to := range sets {
			if testing.Short() && k != (j+3)%len(sets) {
				continue
			}
			i.ensure(t, grants(v, from.grants...))
			i.ensure(t, grants(v, to.grants...))
			sameView(t, from.name+" to "+to.name, views[k], h.view(t))
		}
	}
	i.remove(t, v)
}

func testRemove(t *testing.T, h *host) {
	i := h.instance(t, "a")
	empty := h.view(t)
	v := h.volume(t, 1)
	i.remove(t, v)
	i.ensure(t, grants(v, chapA, chapB))
	changes := i.changes(t, func() { i.remove(t, v) })
	// Nobody comes back in while it is taken down.
	if want := "write " + i.names(v.UUID).tpg + "/enable"; len(changes) == 0 || changes[0] != want {
		t.Errorf("Remove begins with %v", changes)
	}
	sameView(t, "after Remove", empty, h.view(t))
	i.remove(t, v)
}

func testTwoVolumes(t *testing.T, h *host) {
	i := h.instance(t, "a")
	one, two := grants(h.volume(t, 1), chapA), grants(h.volume(t, 2), openB)
	i.ensure(t, one)
	alone := h.view(t)
	i.ensure(t, two)
	i.remove(t, two)
	sameView(t, "the other volume", alone, h.view(t))
	i.remove(t, one)
}

func testList(t *testing.T, h *host) {
	i := h.instance(t, "a")
	one, two := grants(h.volume(t, 1), chapB, chapA), grants(h.volume(t, 2), openB)
	i.ensure(t, one)
	i.ensure(t, two)
	n := i.names(two.UUID)
	must(t, h.fs.Write(n.tpg+"/enable", "0"))
	want := []export.Status{
		{UUID: one.UUID, Complete: true, Clients: []string{initiator("a"), initiator("b")}},
		{UUID: two.UUID, Complete: false, Clients: []string{initiator("b")}},
	}
	list, err := i.List(t.Context())
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	// A grant whose LUN has lost its backstore has no access, link or not.
	must(t, h.fs.Unlink(n.lunLink))
	list, err = i.List(t.Context())
	want[1].Clients = nil
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if sessions, err := i.Sessions(t.Context(), one.UUID); err != nil || len(sessions) > 0 {
		t.Errorf("sessions: %v, %v", sessions, err)
	}
	i.remove(t, one)
	i.remove(t, two)
	if list, err := i.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("of nothing: %v, %v", list, err)
	}
	if sessions, err := i.Sessions(t.Context(), one.UUID); err != nil || len(sessions) > 0 {
		t.Errorf("sessions of nothing: %v, %v", sessions, err)
	}
}

func testLowerCase(t *testing.T, h *host) {
	i := h.instance(t, "Upper-Case")
	v := grants(h.volume(t, 1), export.Grant{Node: "a", Initiator: strings.ToUpper(initiator("a"))})
	i.ensure(t, v)
	for _, line := range h.view(t) {
		for p := range strings.SplitSeq(strings.SplitN(line, " ", 2)[0], "/") {
			if strings.HasPrefix(strings.ToLower(p), "iqn.") && strings.ToLower(p) != p {
				t.Errorf("upper case: %s", line)
			}
		}
	}
	i.remove(t, v)
}

// testConcurrent has two exporters of one instance at work, as two processes
// would be, while one of them lists. After that, volumes that come and go by
// themselves make and remove the directory that they share.
func testConcurrent(t *testing.T, h *host) {
	oldCount, freshCount, rounds := 8, 16, 10
	if testing.Short() { // each takes a zvol
		oldCount, freshCount, rounds = 3, 5, 3
	}
	lock := filepath.Join(t.TempDir(), "lock")
	share := func(c *Config) { c.LockPath = lock }
	one, two := h.instanceWith(t, "a", share), h.instanceWith(t, "a", share)
	old := make([]export.Volume, oldCount)
	for k := range old {
		old[k] = grants(h.volume(t, 100+k), openA)
		one.ensure(t, old[k])
	}
	fresh := make([]export.Volume, freshCount)
	for k := range fresh {
		fresh[k] = grants(h.volume(t, k), chapA, readOnlyB)
	}
	stop := make(chan struct{})
	var listing, wg sync.WaitGroup
	listing.Go(func() {
		for {
			if _, err := one.List(t.Context()); err != nil {
				t.Errorf("List: %v", err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for k, v := range fresh {
		i := []*instance{one, two}[k%2]
		wg.Go(func() {
			if err := i.Ensure(t.Context(), v); err != nil {
				t.Errorf("Ensure %s: %v", v.ID, err)
			}
		})
	}
	for k, v := range old {
		i := []*instance{one, two}[k%2]
		wg.Go(func() {
			if err := i.Remove(t.Context(), v.UUID); err != nil {
				t.Errorf("Remove %s: %v", v.ID, err)
			}
		})
	}
	wg.Wait()
	close(stop)
	listing.Wait()
	want := make([]export.Status, 0, len(fresh))
	for _, v := range fresh {
		want = append(want, export.Status{UUID: v.UUID, Complete: true, Clients: []string{initiator("a"), initiator("b")}})
	}
	list, err := one.List(t.Context())
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, v := range fresh {
		two.remove(t, v)
	}
	for _, v := range fresh[:4] {
		wg.Go(func() {
			for range rounds {
				if err := errors.Join(one.Ensure(t.Context(), v), one.Remove(t.Context(), v.UUID)); err != nil {
					t.Errorf("%s: %v", v.ID, err)
				}
			}
		})
	}
	wg.Wait()
}

// testFailedWrites fails each operation of a publish with credentials once, the
// short form every third.
func testFailedWrites(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), mutualA)
	n := i.names(v.UUID)
	before := i.inject.Operations()
	i.ensure(t, v)
	operations := i.inject.Operations() - before
	i.remove(t, v)
	every := 1
	if testing.Short() {
		every = 3
	}
	for k := 1; k <= operations; k += every {
		i.inject.FailNth(k, syscall.EROFS)
		err := i.Ensure(t.Context(), v)
		i.inject.Heal()
		if err == nil {
			t.Fatalf("operation %d failed and Ensure did not", k)
		}
		for _, secret := range []string{mutual.Password, mutual.MutualPassword} {
			if strings.Contains(err.Error(), secret) || strings.Contains(fmt.Sprintf("%#v", err), secret) {
				t.Fatalf("operation %d: the password is in the error: %v", k, err)
			}
			if strings.Contains(i.log.String(), secret) {
				t.Fatalf("operation %d: the password is in the log", k)
			}
		}
		// Only the reading back comes after the target was enabled.
		if enabled, _ := h.fs.Read(n.tpg + "/enable"); enabled == "1" {
			s, err := i.tree(t.Context()).state(n)
			if problems := s.faults(n); err != nil || len(problems) > 0 {
				t.Fatalf("operation %d: enabled and not complete: %v %v", k, err, problems)
			}
		}
		i.ensure(t, v)
		i.remove(t, v)
	}
}

func testSerial(t *testing.T, h *host) {
	i := h.instance(t, "a")
	one, two := grants(h.volume(t, 1), chapA), grants(h.volume(t, 2), chapA)
	serial := func(v export.Volume) string {
		s, err := h.fs.Read(i.names(v.UUID).backstore + "/wwn/vpd_unit_serial")
		must(t, err)
		return strings.TrimPrefix(s, serialLabel)
	}
	for range 2 { // the second is a restart of the target
		i.ensure(t, one)
		i.ensure(t, two)
		if serial(one) != one.UUID || serial(two) != two.UUID {
			t.Errorf("serials are %s and %s", serial(one), serial(two))
		}
		i.remove(t, one)
		i.remove(t, two)
	}
	// What the initiator's SCSI id is made of: the first 25 digits.
	if one.UUID[:25] == two.UUID[:25] {
		t.Fatal("the test's volumes would be one disk")
	}
}

func testOrphan(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), openA)
	n := i.names(v.UUID)
	h.backstore(t, n.backstore, v.Source)
	list, err := i.List(t.Context())
	if diff := cmp.Diff([]export.Status{{UUID: v.UUID}}, list); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	i.remove(t, v)
	if list, err := i.List(t.Context()); err != nil || len(list) > 0 {
		t.Fatalf("after Remove: %v, %v", list, err)
	}
	must(t, h.fs.Mkdir(n.hba), h.fs.Mkdir(n.backstore))
	i.ensure(t, v)
	i.remove(t, v)
}

func testBackstoreBusy(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), openA)
	n := i.names(v.UUID)
	i.ensure(t, v)
	i.inject.FailAt("rmdir", n.backstore, 1, syscall.EIO)
	if err := i.Remove(t.Context(), v.UUID); !errors.Is(err, syscall.EIO) {
		t.Fatalf("first Remove: %v", err)
	}
	i.remove(t, v)
}

// testLateDevice has the kernel fail to open a device that was there: its link
// goes once more, or other zfs commands run.
func testLateDevice(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	enable := i.names(v.UUID).backstore + "/enable"
	for _, errno := range []error{restartSys, syscall.ENOENT, syscall.ENXIO} {
		i.inject.FailAt("write", enable, 3, errno)
		i.ensure(t, v)
		i.remove(t, v)
	}
	usual := i.deviceWait
	i.deviceWait = 10 * time.Millisecond
	i.inject.FailAt("write", enable, 1<<30, restartSys)
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
		t.Errorf("when it never ends: %v", err)
	}
	i.inject.Heal()
	i.deviceWait = usual
	i.ensure(t, v)
	i.remove(t, v)
}
