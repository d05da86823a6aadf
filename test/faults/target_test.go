//go:build !guest && !faults

package faults

import (
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/test/inprocess"
)

const (
	sentinelUser     = "u1"
	sentinelPassword = "sentinel-5b1f0c"
)

func publication(id string, c *csi.VolumeCapability) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: inprocess.OtherNodeID, VolumeCapability: c}
}

// A password that cannot be written leaves the target closed and stands in no
// error and no log; half a pair is refused before the target is touched.
func TestC22APasswordThatCannotBeWrittenLeavesTheTargetClosed(t *testing.T) {
	w := start(t, func(p *inprocess.Parts) { p.CHAP = chap.Secrets })
	w.Logger().SetLevel(logrus.TraceLevel)
	eachVersion(t, w.conn, func(t *testing.T, p plugin) {
		ctx := t.Context()
		id := must[*csi.CreateVolumeResponse](t, "create")(p.CreateVolume(ctx, creation("c22", "iscsi", 64*mib, asBlock()))).GetVolume().GetVolumeId()
		r := publication(id, asBlock())

		touched := w.Storage.Writes.Operations()
		r.Secrets = map[string]string{"node.session.auth.username": sentinelUser}
		_, err := p.ControllerPublishVolume(ctx, r)
		wantCode(t, "half a pair", err, "both", codes.InvalidArgument)
		if now := w.Storage.Writes.Operations(); now != touched {
			t.Errorf("half a pair: %d operations on configfs", now-touched)
		}

		r.Secrets["node.session.auth.password"] = sentinelPassword
		info := must[*csi.ControllerPublishVolumeResponse](t, "publish")(p.ControllerPublishVolume(ctx, r))
		iqn := info.GetPublishContext()["iqn"]
		auth := w.attribute(t, "acls", iqn, "/auth/password")
		w.unpublish(t, p, id)

		w.Storage.Writes.FailAt("write", auth, 1, syscall.EROFS)
		_, err = p.ControllerPublishVolume(ctx, r)
		w.Storage.Writes.Heal()
		if err == nil {
			t.Fatal("the publish succeeds, so the password was not refused")
		}
		if strings.Contains(err.Error(), sentinelPassword) {
			t.Errorf("the password is in the error: %v", err)
		}
		if open := w.enabled(iqn); open {
			t.Error("the target is open after its password could not be written")
		}
		if s := w.Storage.Configfs.Login(iqn, w.Storage.Naming.Initiator("worker-2"), "", ""); s != nil {
			t.Error("a login without a password is let in")
		}
		must[*csi.ControllerPublishVolumeResponse](t, "publish again")(p.ControllerPublishVolume(ctx, r))
		if s := w.Storage.Configfs.Login(iqn, w.Storage.Naming.Initiator("worker-2"), sentinelUser, sentinelPassword); s == nil {
			t.Error("the pair does not log in, so no password was ever written")
		}
		w.unpublish(t, p, id)
		must[*csi.DeleteVolumeResponse](t, "delete")(p.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}))
		if lines := w.log.lines(sentinelPassword); len(lines) > 0 {
			t.Errorf("the password is in the log: %q", lines)
		}
	})
	if len(w.log.lines("ControllerPublishVolume", "request")) == 0 {
		t.Error("the log holds no requests, so nothing was searched")
	}
}

func (w *world) unpublish(t *testing.T, p plugin, id string) {
	t.Helper()
	must[*csi.ControllerUnpublishVolumeResponse](t, "unpublish")(p.ControllerUnpublishVolume(t.Context(),
		&csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: inprocess.OtherNodeID}))
}

// attribute is the one path in a target that ends so.
func (w *world) attribute(t *testing.T, dir, iqn, end string) string {
	t.Helper()
	for _, line := range w.Storage.Targets() {
		p, _, _ := strings.Cut(line, " = ")
		if strings.HasPrefix(p, path.Join("target/iscsi", iqn, "tpgt_1", dir)) && strings.HasSuffix(p, end) {
			return p
		}
	}
	t.Fatalf("%s has no %s: %q", iqn, end, w.Storage.Targets())
	return ""
}

func (w *world) enabled(iqn string) bool {
	v, err := w.Storage.Configfs.Read(path.Join("target/iscsi", iqn, "tpgt_1/enable"))
	return err == nil && strings.TrimSpace(v) == "1"
}
