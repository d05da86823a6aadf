//go:build guest

package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/test/machine"
)

// The daemon is killed while zfs create runs, and there is one volume in the end.
func TestC11OneVolumeForOneNameAfterAKill(t *testing.T) {
	dir, restore := replaceTool(t, "zfs", `case "$*" in create*c11*) echo $$ >"$dir/new"; mv "$dir/new" "$dir/pid"; kill -STOP $$;; esac; exec "$real" "$@"`)
	r := creation("c11", "iscsi", 64*mib, asBlock())
	p := newAPI()
	ended := make(chan error, 1)
	go func() {
		_, err := p.CreateVolume(soon(t), r)
		ended <- err
	}()
	stopped := stoppedTool(t, dir)
	_, err := oldAPI().CreateVolume(soon(t), r)
	wantCode(t, "while it runs", err, "", codes.Aborted)
	host.Daemon.Kill()
	if err := <-ended; err == nil {
		t.Fatal("the call got its answer")
	}
	restore()
	// What the daemon started may end after the daemon, or with it.
	if err := unix.Kill(stopped, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	again(t, host.Daemon)
	var made *csi.CreateVolumeResponse
	eventually(t, "the next call succeeds", time.Minute, func() bool {
		made, err = p.CreateVolume(soon(t), r)
		return status.Code(err) != codes.Aborted && status.Code(err) != codes.Unavailable
	})
	if err != nil || made.GetVolume().GetVolumeId() != "p/c11" {
		t.Fatalf("%v, %v", made, err)
	}
	if zvols := strings.Fields(machine.Sh(t, "zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", host.Pool.Parent())); len(zvols) != 1 {
		t.Errorf("zvols: %q", zvols)
	}
	must[*csi.DeleteVolumeResponse](t, "c11")(p.DeleteVolume(soon(t), &csi.DeleteVolumeRequest{VolumeId: "p/c11"}))
}
