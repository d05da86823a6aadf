//go:build guest

package faults

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// foreignTarget maps a backstore into a target that is not of the driver, until
// the returned function is called.
func foreignTarget(t *testing.T, iqn, backstore string) (remove func()) {
	t.Helper()
	tpg := filepath.Join(targets, iqn, "tpgt_1")
	lun := filepath.Join(tpg, "lun/lun_1")
	for _, dir := range []string{filepath.Dir(tpg), tpg, lun} {
		step(t, os.Mkdir(dir, 0o755))
	}
	link := filepath.Join(lun, "foreign")
	step(t, os.Symlink(backstore, link))
	return func() {
		t.Helper()
		for _, path := range []string{link, lun, tpg, filepath.Dir(tpg)} {
			step(t, os.Remove(path))
		}
	}
}

// backstoreOf is the backstore that a published volume's target maps.
func backstoreOf(t *testing.T, iqn string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(theOne(t, filepath.Join(targets, iqn, "tpgt_1/lun/lun_1/tarn*")))
	step(t, err)
	return path
}

// teardown is what takes a target away, in the kernel's order.
func teardown(t *testing.T, iqn string) (steps []func() error) {
	t.Helper()
	target := filepath.Join(targets, iqn)
	tpg := filepath.Join(target, "tpgt_1")
	backstore := backstoreOf(t, iqn)
	aclLink := theOne(t, tpg+"/acls/*/lun_1/lun_1")
	lunLink := theOne(t, tpg+"/lun/lun_1/tarn*")
	steps = append(steps, func() error { return os.WriteFile(tpg+"/enable", []byte("0"), 0o644) })
	for _, path := range []string{aclLink, filepath.Dir(aclLink), filepath.Dir(filepath.Dir(aclLink)), lunLink, filepath.Dir(lunLink),
		theOne(t, tpg+"/np/*"), tpg, target, backstore, filepath.Dir(backstore)} {
		steps = append(steps, func() error { return os.Remove(path) })
	}
	return steps
}

// Whatever is left of a target and its backstore is taken away by the next call.
func TestC44TheBackstoreGoesBeforeTheZvol(t *testing.T) {
	v := newBlock(t, newAPI(), "c44")
	v.publish()
	iqn := v.info["iqn"]

	// The backstore cannot be removed once.
	remove := foreignTarget(t, "iqn.2026-01.io.example:holder", backstoreOf(t, iqn))
	if err := v.tryUnpublish(); err == nil {
		t.Fatal("the backstore is held, and the unpublish succeeds")
	}
	wantCode(t, "delete meanwhile", v.tryRemove(), "", codes.FailedPrecondition, codes.Unavailable, codes.Internal)
	remove()
	v.unpublish()
	v.unpublish()
	if left := targetsLeft(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	v.remove()
	v.remove()

	// The daemon is killed within the teardown.
	v = newBlock(t, oldAPI(), "c44-killed")
	for _, done := range []int{2, 6, 10} {
		v.publish()
		iqn := v.info["iqn"]
		steps := teardown(t, iqn)
		host.Daemon.Kill()
		for _, do := range steps[:done] {
			step(t, do())
		}
		again(t, host.Daemon)
		v.unpublish()
		if left := targetsLeft(t); len(left) > 0 {
			t.Errorf("killed after %d steps: left %q", done, left)
		}
	}
	v.remove()

	// A session is open.
	v = newBlock(t, newAPI(), "c44-open")
	v.up()
	wantCode(t, "delete with a session open", v.tryRemove(), "published", codes.FailedPrecondition)
	write(t, v.data(), "the target works")
	wantText(t, v.data(), "the target works")
	v.down()
	if left := targetsLeft(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A target that is there under a volume's name and maps another zvol is not
// used.
func TestC56AnotherVolumesDiskIsNotServed(t *testing.T) {
	const pattern = "secret of the first owner"
	v1 := newBlock(t, newAPI(), "c56-1")
	v1.up()
	write(t, v1.data(), pattern)
	v1.nodeUnpublish()
	v1.unstage()
	v1.unpublish()

	v2 := newBlock(t, newAPI(), "c56-2")
	v2.publish()
	iqn, backstore := v2.info["iqn"], backstoreOf(t, v2.info["iqn"])
	v2.unpublish()
	// What was left of the first owner: his zvol behind the second one's name.
	step(t, os.MkdirAll(filepath.Dir(backstore), 0o755))
	step(t, os.Mkdir(backstore, 0o755))
	device := "/dev/zvol/" + v1.dataset()
	put(t, backstore+"/control", "udev_path="+device)
	put(t, backstore+"/udev_path", device)
	put(t, backstore+"/enable", "1")
	remove := foreignTarget(t, iqn, backstore)
	if _, err := v2.p.ControllerPublishVolume(soon(t), v2.publishRequest()); err == nil {
		v2.stage()
		v2.nodePublish()
		wantZeros(t, v2.data())
		t.Log("the target was made right")
	} else {
		wantCode(t, "publish", err, "", codes.FailedPrecondition)
		if err := v2.tryStage(); err == nil {
			t.Error("a refused publication is staged")
		}
		if on := strings.TrimSpace(string(must[[]byte](t, "enable")(os.ReadFile(filepath.Join(targets, iqn, "tpgt_1/enable"))))); on != "0" {
			t.Errorf("the foreign target is enabled: %s", on)
		}
		remove()
		step(t, os.Remove(backstore))
		if err := os.Remove(filepath.Dir(backstore)); err != nil && exists(filepath.Dir(backstore)) {
			t.Fatal(err)
		}
	}
	v2.publish()
	v2.stage()
	v2.nodePublish()
	wantZeros(t, v2.data())
	v2.down()
	v1.remove()
}

// Prefix and names with capitals have one lower-case form everywhere.
func TestC05IQNsAreLowerCase(t *testing.T) {
	d := ownDaemon(t, "c05", "--iqn-prefix", "iqn.2003-01.org.example:K8S")
	c := daemonConn{d}
	upper, lower := newBlock(t, inV0(c), "PVC-ABC01"), newBlock(t, inV1(c), "pvc-abc01")
	upper.publish()
	lower.publish()
	for _, v := range []*vol{upper, lower} {
		iqn := v.info["iqn"]
		if iqn != strings.ToLower(iqn) || !strings.HasPrefix(iqn, "iqn.2003-01.org.example:k8s") || !exists(filepath.Join(targets, iqn)) {
			t.Errorf("the target of %s is %q, in configfs: %q", v.id, iqn, targetsLeft(t))
		}
	}
	if upper.id == lower.id || upper.info["iqn"] == lower.info["iqn"] {
		t.Errorf("%s and %s are one", upper.id, lower.id)
	}
	if zvols := strings.Fields(machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", host.Pool.Name+"/c05")); len(zvols) != 2 {
		t.Errorf("zvols: %q", zvols)
	}
	upper.stage()
	upper.unstage()
	upper.unpublish()
	if !exists(filepath.Join(targets, lower.info["iqn"])) {
		t.Error("the other volume's target went too")
	}
	upper.remove()
	lower.unpublish()
	lower.remove()
	again(t, d)
	if left := targetsLeft(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Long names have a bounded form, the same at each replay, and OK is said of
// what the kernel has.
func TestC04LongNamesAreBounded(t *testing.T) {
	long := "pvc-" + strings.Repeat("n", 123)
	var seen []string
	for k, name := range []string{"pvc-" + strings.Repeat("m", 61), long + "1", long + "2"} {
		p := []plugin{oldAPI(), newAPI()}[k%2]
		r := creation(name, "iscsi", 64*mib, asBlock())
		first := must[*csi.CreateVolumeResponse](t, name)(p.CreateVolume(soon(t), r)).GetVolume().GetVolumeId()
		if second := must[*csi.CreateVolumeResponse](t, name)(p.CreateVolume(soon(t), r)).GetVolume().GetVolumeId(); second != first {
			t.Errorf("a replay of %s makes %s and %s", name, first, second)
		}
		v := &vol{t: t, p: p, id: first, cap: asBlock(), word: "c04", dir: filepath.Join(host.Daemon.Dir, "use", "c04")}
		v.node = must[*csi.NodeGetInfoResponse](t, "NodeGetInfo")(p.NodeGetInfo(soon(t), &csi.NodeGetInfoRequest{})).GetNodeId()
		v.publish()
		iqn := v.info["iqn"]
		if len(iqn) > 223 || len(filepath.Base(backstoreOf(t, iqn))) > 64 || len(v.dataset()) > 255 || len(first) > 128 {
			t.Errorf("%s has %s, %s", name, iqn, v.dataset())
		}
		if on, err := os.ReadFile(filepath.Join(targets, iqn, "tpgt_1/enable")); err != nil || strings.TrimSpace(string(on)) != "1" {
			t.Errorf("OK, and the kernel has no such target: %q, %v", on, err)
		}
		for _, path := range []string{v.staging(), filepath.Dir(v.target())} {
			step(t, os.MkdirAll(path, 0o755))
		}
		if k == 1 { // the longest
			v.stage()
			v.unstage()
		}
		v.unpublish()
		v.remove()
		seen = append(seen, first)
	}
	if seen[1] == seen[2] {
		t.Errorf("two names make one volume: %s", seen[1])
	}
	before := machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-r", host.Pool.Parent())
	_, err := newAPI().CreateVolume(soon(t), creation(strings.Repeat("n", 10_000), "iscsi", 64*mib, asBlock()))
	wantCode(t, "a name that no property holds", err, "", codes.InvalidArgument)
	if after := machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-r", host.Pool.Parent()); after != before {
		t.Errorf("made: %s", after)
	}
}

// Many volumes are made, published and taken away at once, while another process
// reads configfs: what was said to be done is there, and nothing else.
func TestC10ParallelChangesOfTargets(t *testing.T) {
	const older, newer = 4, 8
	var old []*vol
	for k := range older {
		v := newBlock(t, newAPI(), "c10-old-"+string(rune('a'+k)))
		v.publish()
		old = append(old, v)
	}
	stop, listed := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				listed <- n
				return
			default:
				_ = filepath.WalkDir(targets, func(path string, d os.DirEntry, err error) error { return nil })
				n++
			}
		}
	}()
	fresh := make([]*vol, newer)
	var wg sync.WaitGroup
	for k := range fresh {
		p := []plugin{oldAPI(), newAPI()}[k%2]
		wg.Go(func() {
			r := creation("c10-new-"+string(rune('a'+k)), "iscsi", 64*mib, asBlock())
			made, err := p.CreateVolume(soon(t), r)
			if err != nil {
				t.Error(err)
				return
			}
			v := &vol{t: t, p: p, id: made.GetVolume().GetVolumeId(), cap: asBlock(), node: old[0].node}
			answer, err := p.ControllerPublishVolume(soon(t), v.publishRequest())
			if err != nil {
				t.Error(err)
				return
			}
			v.info = answer.GetPublishContext()
			fresh[k] = v
		})
	}
	for _, v := range old {
		wg.Go(func() {
			if err := v.tryUnpublish(); err != nil {
				t.Error(err)
			}
			if err := v.tryRemove(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(stop)
	if n := <-listed; n == 0 {
		t.Error("nobody listed configfs meanwhile")
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, v := range fresh {
		backstore := backstoreOf(t, v.info["iqn"])
		for path, want := range map[string]string{
			filepath.Join(targets, v.info["iqn"], "tpgt_1/enable"): "1",
			backstore + "/udev_path":                               "/dev/zvol/" + v.dataset(),
		} {
			if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != want {
				t.Errorf("%s is %q, %v, want %q", path, b, err, want)
			}
		}
		if props := machine.Sh(t, "zfs", "get", "-H", "-s", "local", "-o", "property", "all", v.dataset()); !strings.Contains(props, "tarn:node.node-1") {
			t.Errorf("%s has no publication: %s", v.id, props)
		}
	}
	if left := targetsLeft(t); len(left) != 2*newer {
		t.Errorf("configfs has %q", left)
	}
	zvols := strings.Fields(machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", host.Pool.Parent()))
	if len(zvols) != newer {
		t.Errorf("zvols: %q", zvols)
	}
	for _, v := range fresh {
		v.unpublish()
		v.remove()
	}
}
