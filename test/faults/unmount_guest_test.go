//go:build guest

package faults

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// An unpublish that was cut off after the unmount is repeated, and what else
// there is of the volume stays.
func TestC08UnpublishIsRepeatedAfterTheUnmount(t *testing.T) {
	v := newVol(t, newAPI(), creation("c08", "nfs", 64*mib, byMany()))
	v.up()
	write(t, v.data(), "kept")
	secondTarget := filepath.Join(v.dir, "pod2", "target")
	if err := os.Mkdir(filepath.Dir(secondTarget), 0o755); err != nil {
		t.Fatal(err)
	}
	r := v.nodePublishRequest()
	r.TargetPath = secondTarget
	must[*csi.NodePublishVolumeResponse](t, "second target")(v.p.NodePublishVolume(soon(t), r))

	dir, restore := replaceTool(t, "umount", `"$real" "$@"; echo $$ >"$dir/new"; mv "$dir/new" "$dir/pid"; kill -STOP $$`)
	ended := make(chan error, 1)
	go func() { ended <- v.tryNodeUnpublish() }()
	stopped := stoppedTool(t, dir)
	if len(mounts(t, v.target())) != 0 {
		t.Fatal("it is still mounted, so the unpublish is not cut off after the unmount")
	}
	host.Daemon.Kill()
	endTool(t, stopped)
	if err := <-ended; err == nil {
		t.Fatal("the unpublish got its answer")
	}
	restore()
	again(t, host.Daemon)
	for _, p := range []plugin{newAPI(), oldAPI(), newAPI()} {
		v.p = p
		v.nodeUnpublish()
		if exists(v.target()) {
			t.Error("the target path is still there")
		}
	}
	wantText(t, filepath.Join(secondTarget, "keep.txt"), "kept")
	wantText(t, filepath.Join(v.staging(), "keep.txt"), "kept")

	// By hand.
	v.p = oldAPI()
	v.nodePublish()
	machine.Sh(t, "umount", v.target())
	v.nodeUnpublish()
	v.nodeUnpublish()
	wantText(t, filepath.Join(v.staging(), "keep.txt"), "kept")
	must[*csi.NodeUnpublishVolumeResponse](t, "second target")(v.p.NodeUnpublishVolume(soon(t), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: secondTarget}))
	v.unstage()
	v.unpublish()
	v.remove()
}

// Nothing is removed through a live mount, whatever umount says.
func TestC16AnUnmountThatLiesLosesNothing(t *testing.T) {
	many := newVol(t, oldAPI(), creation("c16-nfs", "nfs", 64*mib, byMany()))
	for _, v := range []*vol{many, newExt4(t, newAPI(), "c16-ext4")} {
		v.up()
		write(t, v.data(), "kept")
		_, restore := replaceTool(t, "umount", "exit 0")
		err := v.tryNodeUnpublish()
		wantCode(t, "NodeUnpublishVolume", err, "still mounted", codes.Unavailable, codes.Internal)
		if len(mounts(t, v.target())) != 1 {
			t.Fatal("it is not mounted any more, so umount did not lie")
		}
		wantText(t, v.data(), "kept")
		if v == many { // at once somewhere else
			r := v.nodePublishRequest()
			r.TargetPath = filepath.Join(v.dir, "pod", "target2")
			must[*csi.NodePublishVolumeResponse](t, "target2")(v.p.NodePublishVolume(soon(t), r))
			wantText(t, filepath.Join(r.TargetPath, "keep.txt"), "kept")
			restore()
			must[*csi.NodeUnpublishVolumeResponse](t, "target2")(v.p.NodeUnpublishVolume(soon(t), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: r.TargetPath}))
			wantText(t, v.data(), "kept")
		}
		restore()
		v.nodeUnpublish()
		wantText(t, filepath.Join(v.staging(), "keep.txt"), "kept")
		v.unstage()
		v.unpublish()
	}

	// On the storage host: a volume whose mount is busy is not deleted, nor is
	// anything in it; another one is.
	v := newNFS(t, newAPI(), "c16-server")
	v.up()
	write(t, v.data(), "kept")
	v.nodeUnpublish()
	v.unstage()
	v.unpublish()
	inPool := filepath.Join(host.Pool.Dir, v.dataset(), "keep.txt")
	f, err := os.Open(inPool)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, "DeleteVolume of a busy volume", v.tryRemove(), "", codes.FailedPrecondition, codes.Unavailable)
	wantText(t, inPool, "kept")
	for _, id := range []string{"p/c16-nfs", "p/c16-ext4"} {
		must[*csi.DeleteVolumeResponse](t, id)(v.p.DeleteVolume(soon(t), &csi.DeleteVolumeRequest{VolumeId: id}))
	}
	wantText(t, inPool, "kept")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	v.remove()
}

// A volume is staged at two paths, as while a node agent is upgraded: the
// session ends with the last.
func TestC52TwoStagingPaths(t *testing.T) {
	v := newExt4(t, newAPI(), "c52")
	v.publish()
	v.stage()
	write(t, filepath.Join(v.staging(), "keep.txt"), "kept")
	moved := *v
	moved.dir = v.dir + "/plugins/kubernetes.io/csi/io.github.tarn-csi/7f3a9c"
	for _, dir := range []string{moved.staging(), filepath.Dir(moved.target())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	moved.stage()
	moved.nodePublish()
	wantText(t, moved.data(), "kept")
	v.unstage()
	write(t, moved.data(), "went on")
	if open := sessions(t); len(open) != 1 || open[0] != v.info["iqn"] {
		t.Fatalf("sessions after the first unstage: %q", open)
	}
	v.unstage() // again
	wantText(t, moved.data(), "went on")
	moved.nodeUnpublish()
	moved.unstage()
	if open := sessions(t); len(open) != 0 {
		t.Errorf("sessions after the last unstage: %q", open)
	}
	v.unpublish()
	v.remove()
}
