//go:build guest

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/machine"
)

// clients are to whom mountd serves a path.
func clients(t *testing.T, path string) (list []string) {
	t.Helper()
	for _, line := range exportsOf(t, path) {
		client, _, _ := strings.Cut(line, "(")
		list = append(list, client)
	}
	slices.Sort(list)
	return list
}

func (v *vol) publishTo(node string) {
	v.t.Helper()
	r := v.publishRequest()
	r.NodeId = node
	must[*csi.ControllerPublishVolumeResponse](v.t, node)(v.p.ControllerPublishVolume(soon(v.t), r))
}

func (v *vol) unpublishFrom(node string) {
	v.t.Helper()
	must[*csi.ControllerUnpublishVolumeResponse](v.t, node)(v.p.ControllerUnpublishVolume(soon(v.t),
		&csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: node}))
}

// An IPv6 client is one client, and nobody else is let in.
func TestC19IPv6ClientsAreExportedWhole(t *testing.T) {
	for _, p := range []plugin{oldAPI(), newAPI()} {
		v := newVol(t, p, creation("c19", "nfs", 64*mib, byMany()))
		share := filepath.Join(host.Pool.Dir, v.dataset())
		nodes := []string{"node-4@192.0.2.21", "node-6@2001:db8:7::12"}
		for _, node := range nodes {
			v.publishTo(node)
		}
		if got := clients(t, share); !slices.Equal(got, []string{"192.0.2.21", "2001:db8:7::12"}) {
			t.Errorf("mountd serves %q", got)
		}
		for _, node := range nodes {
			v.unpublishFrom(node)
		}
		if got := clients(t, share); len(got) != 0 {
			t.Errorf("unpublished, and mountd serves %q", got)
		}
		v.remove()
	}
}

func services(t *testing.T, verb string, names ...string) {
	t.Helper()
	root, err := harness.Root()
	step(t, err)
	machine.Sh(t, filepath.Join(root, "hack/vm/services"), append([]string{verb}, names...)...)
}

// A restart of the NFS server loses no export, and an export that was lost comes
// back with the same options: by itself, and at the next publish.
func TestC20ExportsOutliveTheServersRestart(t *testing.T) {
	d := ownDaemon(t, "c20", "--reconcile-interval", "2s")
	v := newVol(t, inV1(daemonConn{d}), creation("pvc-n", "nfs", 64*mib, byMany()))
	v.up()
	share := filepath.Join(host.Pool.Dir, host.Pool.Name, "c20/pvc-n")
	before := exportsOf(t, share)
	if len(before) != 1 {
		t.Fatalf("mountd serves %q", before)
	}
	f, err := os.Create(v.data())
	step(t, err)
	defer f.Close()
	writing := func(text string) {
		t.Helper()
		_, err := f.WriteString(text)
		step(t, err)
		step(t, f.Sync())
	}
	writing("before")
	services(t, "restart", "nfs")
	if got := exportsOf(t, share); !slices.Equal(got, before) {
		t.Errorf("after the restart mountd serves %q, and served %q", got, before)
	}
	writing(", after the restart")

	// Lost altogether: the daemon notices by itself.
	lose := func() {
		t.Helper()
		files, err := filepath.Glob("/etc/exports.d/tarn-*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no file holds the export: %v", err)
		}
		for _, file := range files {
			step(t, os.Remove(file))
		}
		machine.Sh(t, "exportfs", "-ua")
	}
	lose()
	eventually(t, "the daemon exports again by itself", 2*time.Minute, func() bool { return slices.Equal(exportsOf(t, share), before) })
	writing(", after the loss")

	// With another node's publish, where no timer comes first.
	d.Kill()
	d.Args = append(d.Args, "--reconcile-interval", "12h")
	step(t, d.Start(soon(t)))
	lose()
	if got := clients(t, share); len(got) != 0 {
		t.Fatalf("still served to %q, so nothing was lost", got)
	}
	v.publishTo("node-2@127.0.0.2")
	if got := clients(t, share); !slices.Equal(got, []string{"127.0.0.1", "127.0.0.2"}) {
		t.Errorf("mountd serves %q", got)
	}
	if got := exportsOf(t, share); !slices.Contains(got, before[0]) {
		t.Errorf("mountd serves %q, and served %q", got, before)
	}
	writing(", after the publish")
	second := *v
	second.dir = v.dir + "-n2"
	step(t, os.MkdirAll(second.staging(), 0o755))
	second.stage()
	wantText(t, filepath.Join(second.staging(), "keep.txt"), "before, after the restart, after the loss, after the publish")
	second.unstage()
	step(t, f.Close())
	v.nodeUnpublish()
	v.unstage()
	v.unpublishFrom("node-2@127.0.0.2")
	v.unpublish()
	v.remove()
}

// mountTools counts processes of mount(8) and its kind.
func mountTools(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	step(t, err)
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), "mount") && strings.TrimSpace(string(b)) != "mountd" {
			n++
		}
	}
	return n
}

// A mount from a server that does not answer ends with its call, and is in
// nobody's way.
func TestC35AMountFromADeadServerEnds(t *testing.T) {
	dead, well := newNFS(t, oldAPI(), "c35-dead"), newNFS(t, newAPI(), "c35-well")
	dead.publish()
	well.publish()
	dead.info["server"] = "127.0.0.3" // the same server, at an address that can be silenced
	tools := mountTools(t)
	speak := machine.Silence(t, "127.0.0.3")
	for k := range 2 {
		var err error
		var begin time.Time
		eventually(t, "the call before has ended", time.Minute, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			begin = time.Now()
			_, err = dead.p.NodeStageVolume(ctx, dead.stageRequest())
			return status.Code(err) != codes.Aborted
		})
		wantCode(t, "the dead server", err, "", codes.DeadlineExceeded)
		if took := time.Since(begin); took < 3*time.Second {
			t.Errorf("it took %s, so the server answers", took)
		}
		if k == 1 {
			well.stage()
			write(t, filepath.Join(well.staging(), "keep.txt"), "kept")
			well.unstage()
		}
	}
	eventually(t, "the tools have ended", time.Minute, func() bool { return mountTools(t) <= tools })
	if at := mounts(t, dead.staging()); len(at) != 0 {
		t.Errorf("mounted: %+v", at)
	}
	speak()
	eventually(t, "the last call has ended", time.Minute, func() bool { return dead.tryStage() == nil })
	dead.unstage()
	for _, v := range []*vol{dead, well} {
		v.unpublish()
		v.remove()
	}
}
