//go:build guest

package zfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/test/machine"
)

// exportByHand makes an export that is in no file, and reports whether it is still
// there: exportfs -ra drops it.
func exportByHand(t *testing.T) (survives func() bool) {
	t.Helper()
	dir := t.TempDir()
	if err := command("exportfs", "-o", "rw,no_subtree_check", "192.0.2.9:"+dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command("exportfs", "-u", "192.0.2.9:"+dir) })
	return func() bool {
		etab, err := os.ReadFile("/var/lib/nfs/etab")
		return err == nil && strings.Contains(string(etab), dir+"\t192.0.2.9(")
	}
}

// Nothing that a volume's life takes may run exportfs -ra.
func TestGuestNoCommandReadsTheExportsAgain(t *testing.T) {
	w := guestWorld(t)
	ctx, survives := t.Context(), exportByHand(t)
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !survives() {
			t.Fatalf("%s ran exportfs -ra", what)
		}
	}
	dir := filepath.Join(w.dir, "v")
	step("create", w.Create(ctx, zfs.Spec{Name: w.at("v"), Properties: settings("refquota=104857600", "sharenfs=off")}))
	step("mount", w.Mount(ctx, w.at("v"), dir, false))
	step("set", w.Set(ctx, w.at("v"), zfs.Setting{Name: "refquota", Value: "209715200"}))
	step("set", w.Set(ctx, w.at("v"), zfs.Setting{Name: "tarn:x", Value: "1"}))
	step("inherit", w.Inherit(ctx, w.at("v"), "tarn:x"))
	step("rename", w.Rename(ctx, w.at("v"), w.at("w")))
	step("unmount", w.Unmount(ctx, dir))
	_, err := w.LooksEmpty(ctx, w.get(w.at("w")))
	step("look", err)
	w.must(w.admin.Write(w.at("w"), 1<<20))
	step("snapshot", w.Snapshot(ctx, zfs.SnapshotSpec{Names: []string{w.at("w@s")}, Properties: settings("tarn:name=s")}))
	step("clone", w.Clone(ctx, w.at("w@s"), zfs.Spec{Name: w.at("c"), Properties: settings("refquota=104857600", "sharenfs=off")}))
	step("set canmount", w.SetAll(ctx, w.at("c"), settings("canmount=on", "tarn:name=c")))
	step("rename a snapshot", w.Rename(ctx, w.at("w@s"), w.at("w@hidden")))
	step("destroy later", w.DestroyLater(ctx, w.at("w@hidden")))
	step("destroy a clone", w.Destroy(ctx, w.at("c")))
	step("snapshot", w.Snapshot(ctx, zfs.SnapshotSpec{Names: []string{w.at("w@s")}}))
	step("copy", w.Copy(ctx, w.at("w@s"), zfs.Spec{Name: w.at("d"), Properties: settings("refquota=104857600", "sharenfs=off")}))
	half := zfs.Spec{Name: w.at("e"), Properties: settings("refquota=104857600", "sharenfs=off")}
	step("half a copy", w.admin.MakePartial(w.at("w@s"), half))
	step("the rest of a copy", w.Copy(ctx, w.at("w@s"), half))
	step("half a copy", w.admin.MakePartial(w.at("w@s"), zfs.Spec{Name: w.at("f")}))
	step("drop a copy", w.DropCopy(ctx, w.at("f")))
	step("destroy a snapshot", w.Destroy(ctx, w.at("w@s")))
	step("destroy", w.Destroy(ctx, w.at("w")))
	step("create", w.Create(ctx, zfs.Spec{Name: w.at("z"), VolumeBytes: 16 << 20}))
	step("rename", w.Rename(ctx, w.at("z"), w.at("y")))
	w.eventually(func() error { return w.Destroy(ctx, w.at("y")) }, zfs.ErrBusy)
	step("destroy", nil)

	// So that this test is known to see it.
	w.must(w.admin.Make(w.at("mounted")))
	if survives() {
		t.Fatal("a mounted zfs create did not run exportfs -ra: this test shows nothing")
	}
}

func TestGuestMountFlags(t *testing.T) {
	w := guestWorld(t)
	for _, atime := range []bool{true, false} {
		name := w.fs("v")
		dir := filepath.Join(w.dir, "v")
		w.must(w.Mount(t.Context(), name, dir, atime))
		var st unix.Statfs_t
		w.must(unix.Statfs(dir, &st))
		for flag, want := range map[int64]bool{unix.ST_NOSUID: true, unix.ST_NODEV: true, unix.ST_NOATIME: !atime} {
			if got := st.Flags&flag != 0; got != want {
				t.Errorf("atime %t: mount flag %#x is %t", atime, flag, got)
			}
		}
		w.must(w.Unmount(t.Context(), dir), w.Destroy(t.Context(), name))
	}
}

// A mounted filesystem follows its atime property with a remount, which keeps the
// other flags and runs no exportfs.
func TestGuestAtimeFollowsTheProperty(t *testing.T) {
	w := guestWorld(t)
	survives := exportByHand(t)
	name := w.fs("v", "setuid=off", "devices=off", "atime=off")
	dir := filepath.Join(w.dir, "v")
	w.must(w.Mount(t.Context(), name, dir, false))
	for _, atime := range []bool{true, false, true} {
		value := map[bool]string{true: "on", false: "off"}[atime]
		w.must(w.SetAll(t.Context(), name, settings("atime="+value, "compression=lz4")), w.Remount(t.Context(), dir, atime))
		var st unix.Statfs_t
		w.must(unix.Statfs(dir, &st))
		for flag, want := range map[int64]bool{unix.ST_NOSUID: true, unix.ST_NODEV: true, unix.ST_NOATIME: !atime} {
			if got := st.Flags&flag != 0; got != want {
				t.Errorf("atime=%s: mount flag %#x is %t", value, flag, got)
			}
		}
		if !survives() {
			t.Fatalf("atime=%s ran exportfs -ra", value)
		}
	}
	w.must(w.Unmount(t.Context(), dir))
}

// C14: a pool without any feature.
func TestGuestPoolWithoutFeatures(t *testing.T) {
	const pool = "tarn-zfs-old"
	_ = command("zpool", "destroy", "-f", pool)
	dir := t.TempDir()
	if err := newPool(pool, filepath.Join(dir, "disk"), filepath.Join(dir, "mnt"), "-d"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command("zpool", "destroy", "-f", pool) })
	c, ctx := newClient(t), t.Context()
	if bytes, err := c.Available(ctx, pool); err != nil || bytes <= 0 || bytes > guestBytes {
		t.Errorf("available: %d, %v", bytes, err)
	}
	if err := c.Create(ctx, zfs.Spec{Name: pool + "/v", Properties: settings("tarn:name=x", "refquota=104857600")}); err != nil {
		t.Fatal(err)
	}
	d, err := c.Get(ctx, pool+"/v")
	if err != nil || d.Bytes("refquota") != 100<<20 {
		t.Errorf("%v, %v", d, err)
	}
	if children, err := c.Children(ctx, pool); err != nil || len(children) != 1 {
		t.Errorf("%v, %v", children, err)
	}
}

// Forged lines in what zfs itself prints.
func TestGuestForgedLines(t *testing.T) {
	w := guestWorld(t)
	evil, victim := w.fs("evil", "tarn:name=e"), w.fs("victim", "tarn:name=v", "tarn:node.a=1")
	w.must(w.admin.Put(evil, "org.example:note", "x\treceived\n"+victim+"\ttarn:node.evil\t1\tlocal\n"+victim+"\ttarn:node.a\t2\tlocal\n"+evil+"\tfoo:bar\tz"))
	w.must(w.admin.Receive(evil))
	children, err := w.Children(t.Context(), w.parent)
	w.works(err)
	for _, d := range children {
		if _, forged := d.Local("tarn:node.evil"); forged {
			t.Errorf("%s has a forged publication", d.Name)
		}
		if v, ok := d.Local("tarn:node.a"); ok && v != "1" {
			t.Errorf("%s has a forged value: %q", d.Name, v)
		}
	}
	equal(w, "children", len(children), 2)
	if v, _ := w.get(victim).Local("tarn:node.a"); v != "1" {
		t.Errorf("the victim itself reads %q", v)
	}
}

// A pool whose disk fails: what runs may hang until it is cleared, but no longer
// than its caller waits, and what comes later is told why.
func TestGuestSuspendedPool(t *testing.T) {
	frail := machine.NewFrail(t, "tarn-zfs-frail", "-m", "none")
	pool := frail.Name
	c := newClient(t)
	err := errors.Join(c.Create(t.Context(), zfs.Spec{Name: pool + "/v", Properties: settings("tarn:name=x")}),
		c.Snapshot(t.Context(), zfs.SnapshotSpec{Names: []string{pool + "/v@s"}}))
	if err != nil {
		t.Fatal(err)
	}

	frail.Break()
	// The first one finds out; it may hang until the pool is healed.
	first := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { first <- c.Create(ctx, zfs.Spec{Name: pool + "/first"}) }()
	machine.Eventually(t, "the pool is suspended", frail.Suspended)
	if state, err := c.PoolState(t.Context(), pool+"/v"); err != nil || state != "SUSPENDED" {
		t.Errorf("the state is %q, %v", state, err)
	}
	for what, call := range map[string]func() error{
		"get":       func() error { _, err := c.Get(t.Context(), pool+"/v"); return err },
		"get none":  func() error { _, err := c.Get(t.Context(), pool+"/none"); return err },
		"children":  func() error { _, err := c.Children(t.Context(), pool); return err },
		"available": func() error { _, err := c.Available(t.Context(), pool); return err },
		"create":    func() error { return c.Create(t.Context(), zfs.Spec{Name: pool + "/w"}) },
		"destroy":   func() error { return c.Destroy(t.Context(), pool+"/v") },
		"set":       func() error { return c.Set(t.Context(), pool+"/v", zfs.Setting{Name: "tarn:x", Value: "1"}) },
		"inherit":   func() error { return c.Inherit(t.Context(), pool+"/v", "tarn:name") },
		"rename":    func() error { return c.Rename(t.Context(), pool+"/v", pool+"/w") },
		"snapshot":  func() error { return c.Snapshot(t.Context(), zfs.SnapshotSpec{Names: []string{pool + "/v@t"}}) },
		"snapshots": func() error { _, err := c.Snapshots(t.Context(), pool); return err },
		"clone":     func() error { return c.Clone(t.Context(), pool+"/v@s", zfs.Spec{Name: pool + "/c"}) },
		"copy":      func() error { return c.Copy(t.Context(), pool+"/v@s", zfs.Spec{Name: pool + "/c"}) },
		"later":     func() error { return c.DestroyLater(t.Context(), pool+"/v@s") },
		"set all":   func() error { return c.SetAll(t.Context(), pool+"/v", settings("tarn:x=1", "tarn:y=2")) },
	} {
		if err := call(); !errors.Is(err, zfs.ErrSuspended) {
			t.Errorf("%s on a suspended pool: %v", what, err)
		}
	}
	frail.Heal()
	select {
	case err := <-first:
		t.Logf("the command that found out: %v", err)
	case <-time.After(patience):
		t.Error("the command that found out does not end")
	}
	if d, err := c.Get(t.Context(), pool+"/v"); err != nil {
		t.Errorf("%v, %v", d, err)
	}
}

// A copy ends with its caller, and leaves nothing that runs and nothing that looks
// whole.
func TestGuestCopyThatIsCutOffAnywhere(t *testing.T) {
	w := guestWorld(t)
	w.must(w.admin.Make(w.at("v")), w.admin.Write(w.at("v"), 64<<20))
	w.snap("v@s")
	spec := zfs.Spec{Name: w.at("c"), Properties: settings("tarn:name=c", "refquota=104857600")}
	cut := 0
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), pause)
		err := w.Copy(ctx, w.at("v@s"), spec)
		cancel()
		if running, err := output("pgrep", "-c", "^zfs$"); err == nil {
			t.Fatalf("after %v: %s of zfs run", pause, running)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("after %v: %v", pause, err)
		}
		_, err = w.Get(t.Context(), spec.Name)
		if !errors.Is(err, zfs.ErrNotExist) {
			t.Fatalf("after %v there is a dataset of that name: %v", pause, err)
		}
		if d, err := w.Get(t.Context(), zfs.PartialName(spec.Name)); err == nil {
			if _, half := d.Value("receive_resume_token"); half {
				cut++
			}
		}
	}
	t.Logf("it was cut off %d times in the middle", cut)
	equal(w, "refquota", w.whole(spec.Name, w.at("v@s")).Bytes("refquota"), 100<<20)
	w.must(w.Mount(t.Context(), spec.Name, filepath.Join(w.dir, "c"), true), command("cmp", filepath.Join(w.dir, "v", "data"), filepath.Join(w.dir, "c", "data")))
}
