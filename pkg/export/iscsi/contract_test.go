package iscsi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
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
	{"C10 sixteen Ensures and eight Removes at once", testConcurrent},
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
	{"C10 a zvol that cannot be opened at once is tried again", testNamesLocked},
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

// ensure fails the test when v cannot be exported, and removes it at the end.
func (i *instance) ensure(t *testing.T, v export.Volume) {
	t.Helper()
	if err := i.Ensure(t.Context(), v); err != nil {
		t.Fatalf("Ensure: %v", err)
	}
}

func (i *instance) remove(t *testing.T, v export.Volume) {
	t.Helper()
	if err := i.Remove(t.Context(), v.UUID); err != nil {
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
// with a target that was made for the second from nothing.
func testTransitions(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := h.volume(t, 1)
	views := make([][]string, len(sets))
	for k, s := range sets {
		i.ensure(t, grants(v, s.grants...))
		views[k] = h.view(t)
		i.remove(t, v)
	}
	for _, from := range sets {
		for k, to := range sets {
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
	i.remove(t, v)
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
	lock := filepath.Join(t.TempDir(), "lock")
	share := func(c *Config) { c.LockPath = lock }
	one, two := h.instanceWith(t, "a", share), h.instanceWith(t, "a", share)
	old := make([]export.Volume, 8)
	for k := range old {
		old[k] = grants(h.volume(t, 100+k), openA)
		one.ensure(t, old[k])
	}
	fresh := make([]export.Volume, 16)
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
	var want []export.Status
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
			for range 10 {
				if err := errors.Join(one.Ensure(t.Context(), v), one.Remove(t.Context(), v.UUID)); err != nil {
					t.Errorf("%s: %v", v.ID, err)
				}
			}
		})
	}
	wg.Wait()
}

// testFailedWrites fails each operation of a publish with credentials once.
func testFailedWrites(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), mutualA)
	n := i.names(v.UUID)
	before := i.inject.Operations()
	i.ensure(t, v)
	operations := i.inject.Operations() - before
	i.remove(t, v)
	for k := 1; k <= operations; k++ {
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
	must(t, h.fs.Mkdir(n.hba), h.fs.Mkdir(n.backstore), h.fs.Write(n.backstore+"/control", "udev_path="+v.Source),
		h.fs.Write(n.backstore+"/enable", "1"))
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
	k, at := 0, 0
	i.inject.Observe(func(op fakeOp) {
		if k++; op.Name == "rmdir" && op.Path == n.backstore {
			at = k
		}
	})
	i.remove(t, v)
	i.inject.Observe(nil)
	if at == 0 {
		t.Fatal("the backstore was never removed")
	}
	i.ensure(t, v)
	i.inject.FailNth(at, syscall.EIO)
	if err := i.Remove(t.Context(), v.UUID); !errors.Is(err, syscall.EIO) {
		t.Fatalf("first Remove: %v", err)
	}
	i.remove(t, v)
}

// testForeignDevice has a retained volume's target under the name of a new one.
func testForeignDevice(t *testing.T, h *host) {
	i := h.instance(t, "a")
	retained := grants(h.volume(t, 1), chapA)
	i.ensure(t, retained)
	before := h.view(t)
	next := grants(retained, chapB)
	next.Source = h.zvol(t)
	if err := i.Ensure(t.Context(), next); fault.Kind(err) != fault.Precondition {
		t.Fatalf("a target on another device: %v", err)
	}
	sameView(t, "the retained target", before, h.view(t))
	i.ensure(t, retained)
	i.remove(t, retained)
	i.ensure(t, next)
	i.remove(t, next)
}

func testForeignSerial(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	must(t, h.fs.Mkdir(n.hba), h.fs.Mkdir(n.backstore), h.fs.Write(n.backstore+"/control", "udev_path="+v.Source),
		h.fs.Write(n.backstore+"/wwn/vpd_unit_serial", uuid(2)), h.fs.Write(n.backstore+"/enable", "1"),
		h.fs.Mkdir(n.target), h.fs.Mkdir(n.tpg), h.fs.Mkdir(n.lun), h.fs.Symlink(n.backstore, n.lunLink))
	before := h.view(t)
	if err := i.Ensure(t.Context(), v); fault.Kind(err) != fault.Precondition {
		t.Fatalf("a target with another serial: %v", err)
	}
	sameView(t, "the target", before, h.view(t))
	i.remove(t, v)
}

func testForeignBackstore(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	const foreignHBA, foreign = coreDir + "/iblock_7", coreDir + "/iblock_7/other"
	must(t, h.fs.Mkdir(foreignHBA), h.fs.Mkdir(foreign), h.fs.Write(foreign+"/control", "udev_path="+h.zvol(t)),
		h.fs.Write(foreign+"/enable", "1"))
	before := h.view(t)
	for _, lun := range []string{"lun_0", "lun_1", "lun_7"} {
		dir := path.Join(n.tpg, "lun", lun)
		must(t, h.fs.Mkdir(n.target), h.fs.Mkdir(n.tpg), h.fs.Mkdir(dir), h.fs.Symlink(foreign, dir+"/x"))
		made := h.view(t)
		if err := i.Ensure(t.Context(), v); fault.Kind(err) != fault.Precondition {
			t.Fatalf("%s on a foreign backstore: %v", lun, err)
		}
		sameView(t, "the target", made, h.view(t))
		i.remove(t, v)
		sameView(t, "the foreign backstore", before, h.view(t))
	}
	// Beside our own LUN.
	i.ensure(t, v)
	must(t, h.fs.Mkdir(n.tpg+"/lun/lun_7"), h.fs.Symlink(foreign, n.tpg+"/lun/lun_7/x"))
	made := h.view(t)
	if err := i.Ensure(t.Context(), grants(v, chapB)); fault.Kind(err) != fault.Precondition {
		t.Fatalf("a second LUN on a foreign backstore: %v", err)
	}
	sameView(t, "the target", made, h.view(t))
	i.remove(t, v)
	must(t, h.fs.Mkdir(n.target), h.fs.Mkdir(n.target+"/tpgt_2"))
	if err := i.Ensure(t.Context(), v); fault.Kind(err) != fault.Precondition {
		t.Fatalf("another portal group: %v", err)
	}
	i.remove(t, v)
	must(t, h.fs.Rmdir(foreign), h.fs.Rmdir(foreignHBA))
}

func testStaleBackstore(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	must(t, h.fs.Mkdir(n.hba), h.fs.Mkdir(n.backstore), h.fs.Write(n.backstore+"/control", "udev_path="+h.zvol(t)),
		h.fs.Write(n.backstore+"/udev_path", v.Source), h.fs.Write(n.backstore+"/enable", "1"))
	i.ensure(t, v)
	i.remove(t, v)
}

func testForeignTarget(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	i.ensure(t, v)
	const other = fabricDir + "/iqn.2026-01.io.example:other"
	must(t, h.fs.Mkdir(other), h.fs.Mkdir(other+"/tpgt_1"), h.fs.Mkdir(other+"/tpgt_1/lun/lun_1"),
		h.fs.Symlink(n.backstore, other+"/tpgt_1/lun/lun_1/x"))
	if err := i.Remove(t.Context(), v.UUID); fault.Kind(err) != fault.Precondition {
		t.Fatalf("Remove while a foreign target maps the backstore: %v", err)
	}
	if _, err := h.fs.List(n.target); err == nil {
		t.Error("our target is still there")
	}
	must(t, h.fs.Unlink(other+"/tpgt_1/lun/lun_1/x"), h.fs.Rmdir(other+"/tpgt_1/lun/lun_1"),
		h.fs.Rmdir(other+"/tpgt_1"), h.fs.Rmdir(other))
	i.remove(t, v)
}

func testHeldDevice(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	const hba, holder = coreDir + "/iblock_7", coreDir + "/iblock_7/holder"
	must(t, h.fs.Mkdir(hba), h.fs.Mkdir(holder), h.fs.Write(holder+"/control", "udev_path="+v.Source),
		h.fs.Write(holder+"/enable", "1"))
	if err := i.Ensure(t.Context(), v); fault.Kind(err) != fault.Precondition {
		t.Fatalf("Ensure: %v", err)
	}
	must(t, h.fs.Rmdir(holder), h.fs.Rmdir(hba))
	i.ensure(t, v)
	i.remove(t, v)
}

// testNamesLocked has the first tries to enable the backstore fail as they do
// while other zfs commands run.
func testNamesLocked(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	tries := 0
	// Observe is called after an operation, so the failure is armed by the one before.
	i.inject.Observe(func(op fakeOp) {
		last := n.backstore + "/wwn/vpd_unit_serial"
		if enable := n.backstore + "/enable"; op.Name == "write" && (op.Path == last || op.Path == enable && tries < 3) {
			tries++
			i.inject.FailNth(1, restartSys)
		}
	})
	if err := i.Ensure(t.Context(), v); err != nil || tries != 3 {
		t.Errorf("after %d failed tries: %v", tries, err)
	}
	i.remove(t, v)
	tries = -1 << 20
	usual := i.deviceWait
	i.deviceWait = 10 * time.Millisecond
	if err := i.Ensure(t.Context(), v); fault.Kind(err) != fault.Unavailable {
		t.Errorf("when it never ends: %v", err)
	}
	i.inject.Observe(nil)
	i.inject.Heal()
	i.deviceWait = usual
	i.ensure(t, v)
	i.remove(t, v)
}

func testForeignUntouched(t *testing.T, h *host) {
	i := h.instance(t, "a")
	const target = fabricDir + "/iqn.2026-01.io.example:foreign"
	const hba, back = coreDir + "/iblock_0", coreDir + "/iblock_0/foreign"
	must(t, h.fs.Mkdir(hba), h.fs.Mkdir(back), h.fs.Write(back+"/control", "udev_path="+h.zvol(t)), h.fs.Write(back+"/enable", "1"),
		h.fs.Mkdir(target), h.fs.Mkdir(target+"/tpgt_1"), h.fs.Mkdir(target+"/tpgt_1/lun/lun_0"),
		h.fs.Symlink(back, target+"/tpgt_1/lun/lun_0/x"), h.fs.Mkdir(target+"/tpgt_1/acls/"+initiator("a")),
		h.fs.Mkdir(target+"/tpgt_1/np/"+portal4.String()))
	// Names that begin like ours.
	like := fabricDir + "/" + i.naming.Instance() + ":" + uuid(1) + "0"
	mark := markOf(i.naming)
	stray := path.Join(mark.hba(), mark.prefix()+"stray")
	must(t, h.fs.Mkdir(like), h.fs.Mkdir(mark.hba()), h.fs.Mkdir(stray))
	before := h.view(t)
	v := grants(h.volume(t, 1), chapA)
	i.ensure(t, v)
	list, err := i.List(t.Context())
	if err != nil || len(list) != 1 || list[0].UUID != v.UUID {
		t.Errorf("List: %v, %v", list, err)
	}
	i.remove(t, v)
	sameView(t, "foreign things", before, h.view(t))
	must(t, h.fs.Rmdir(stray), h.fs.Rmdir(mark.hba()), h.fs.Rmdir(like), h.fs.Rmdir(target+"/tpgt_1/np/"+portal4.String()), h.fs.Rmdir(target+"/tpgt_1/acls/"+initiator("a")),
		h.fs.Unlink(target+"/tpgt_1/lun/lun_0/x"), h.fs.Rmdir(target+"/tpgt_1/lun/lun_0"), h.fs.Rmdir(target+"/tpgt_1"),
		h.fs.Rmdir(target), h.fs.Rmdir(back), h.fs.Rmdir(hba))
}

func testTwoInstances(t *testing.T, h *host) {
	a, b := h.instance(t, "a"), h.instance(t, "b")
	one := grants(h.volume(t, 1), chapA)
	two := grants(h.volume(t, 1), openB) // the same uuid on another pool
	b.ensure(t, two)
	alone := h.view(t)
	a.ensure(t, one)
	list, err := a.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Clients[0] != initiator("a") {
		t.Errorf("List of a: %v, %v", list, err)
	}
	a.remove(t, one)
	sameView(t, "the other instance", alone, h.view(t))
	a.remove(t, two)
	sameView(t, "the other instance", alone, h.view(t))
	if list, err := a.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("List of a: %v, %v", list, err)
	}
	b.remove(t, two)
}

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

// testReadBack has somebody change the target right after Ensure has made it.
func testReadBack(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA, readOnlyB)
	n := i.names(v.UUID)
	i.ensure(t, v)
	for _, b := range h.breakages(n) {
		i.remove(t, v)
		i.inject.Observe(func(op fakeOp) {
			if op.Name == "write" && op.Path == n.tpg+"/enable" {
				must(t, b.do())
			}
		})
		err := i.Ensure(t.Context(), v)
		i.inject.Observe(nil)
		if fault.Kind(err) != fault.Unavailable {
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
	if fault.Kind(err) != fault.Unavailable || !strings.Contains(err.Error(), portal4.String()) {
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
// come to the same end as one that was never cut off.
func testCutOff(t *testing.T, h *host) {
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
		for k := 0; ; k++ {
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
