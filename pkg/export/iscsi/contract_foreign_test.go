package iscsi

import (
	"errors"
	"path"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// testForeignDevice has a retained volume's target under the name of a new one.
func testForeignDevice(t *testing.T, h *host) {
	i := h.instance(t, "a")
	retained := grants(h.volume(t, 1), chapA)
	i.ensure(t, retained)
	before := h.view(t)
	next := grants(retained, chapB)
	next.Source = h.zvol(t)
	if err := i.Ensure(t.Context(), next); !errors.Is(err, fault.Precondition) {
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
	h.backstore(t, n.backstore, v.Source)
	must(t, h.fs.Write(n.backstore+"/wwn/vpd_unit_serial", uuid(2)), h.fs.Mkdir(n.target), h.fs.Mkdir(n.tpg), h.fs.Mkdir(n.lun), h.fs.Symlink(n.backstore, n.lunLink))
	before := h.view(t)
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Precondition) {
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
	h.backstore(t, foreign, h.zvol(t))
	before := h.view(t)
	for _, lun := range []string{"lun_0", "lun_1", "lun_7"} {
		dir := path.Join(n.tpg, "lun", lun)
		must(t, h.fs.Mkdir(n.target), h.fs.Mkdir(n.tpg), h.fs.Mkdir(dir), h.fs.Symlink(foreign, dir+"/x"))
		made := h.view(t)
		if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Precondition) {
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
	if err := i.Ensure(t.Context(), grants(v, chapB)); !errors.Is(err, fault.Precondition) {
		t.Fatalf("a second LUN on a foreign backstore: %v", err)
	}
	sameView(t, "the target", made, h.view(t))
	i.remove(t, v)
	must(t, h.fs.Mkdir(n.target), h.fs.Mkdir(n.target+"/tpgt_2"))
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Precondition) {
		t.Fatalf("another portal group: %v", err)
	}
	i.remove(t, v)
	must(t, h.fs.Rmdir(foreign), h.fs.Rmdir(foreignHBA))
}

func testStaleBackstore(t *testing.T, h *host) {
	i := h.instance(t, "a")
	v := grants(h.volume(t, 1), chapA)
	n := i.names(v.UUID)
	h.backstore(t, n.backstore, h.zvol(t))
	must(t, h.fs.Write(n.backstore+"/udev_path", v.Source))
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
	if err := i.Remove(t.Context(), v.UUID); !errors.Is(err, fault.Precondition) {
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
	h.backstore(t, holder, v.Source)
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Precondition) {
		t.Fatalf("Ensure: %v", err)
	}
	must(t, h.fs.Rmdir(holder), h.fs.Rmdir(hba))
	i.ensure(t, v)
	i.remove(t, v)
}

func testForeignUntouched(t *testing.T, h *host) {
	i := h.instance(t, "a")
	const target = fabricDir + "/iqn.2026-01.io.example:foreign"
	const hba, back = coreDir + "/iblock_0", coreDir + "/iblock_0/foreign"
	h.backstore(t, back, h.zvol(t))
	must(t, h.fs.Mkdir(target), h.fs.Mkdir(target+"/tpgt_1"), h.fs.Mkdir(target+"/tpgt_1/lun/lun_0"),
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
