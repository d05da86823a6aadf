//go:build guest

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/test/harness"
)

// pagesAt is where a daemon of these tests serves pages.
const pagesAt = "127.0.0.1:9805"

func get(path string) (int, string, error) {
	r, err := http.Get("http://" + pagesAt + path)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(r.Body)
	return r.StatusCode, string(body), errors.Join(err, r.Body.Close())
}

// seenFromOutside compares what the daemon shows over HTTP, after its first round
// and sweep, with the two volumes that are in use.
func seenFromOutside(t *testing.T, nfs, block *live) {
	t.Helper()
	var wrong string
	defer func() {
		if wrong != "" {
			t.Log(wrong)
		}
	}()
	eventually(t, "what is seen from outside is true", time.Minute, func() bool {
		wrong = ""
		for path, want := range map[string][]string{
			"/healthz": nil,
			"/readyz":  nil,
			"/metrics": {
				"\ntarn_ready 1\n", "\ntarn_healthy 1\n", `tarn_pool_usable{pool="p"} 1` + "\n", `tarn_sessions{pool="p"} 1` + "\n",
				`tarn_volumes{pool="p",protocol="nfs"} 1` + "\n", `tarn_volumes{pool="p",protocol="iscsi"} 1` + "\n",
				`tarn_exports_wanted{pool="p",protocol="nfs"} 1` + "\n", `tarn_exports_seen{pool="p",protocol="nfs"} 1` + "\n",
				`tarn_exports_wanted{pool="p",protocol="iscsi"} 1` + "\n", `tarn_exports_seen{pool="p",protocol="iscsi"} 1` + "\n",
				fmt.Sprintf("tarn_volume_bytes{pool=\"p\",protocol=\"nfs\"} %g\n", float64(nfs.kind.sizeBytes)),
				`tarn_reconcile_repairs_total{kind="export"} 1` + "\n", // it was lost while the daemon was down
				`tarn_node_sessions{state="up"} 1` + "\n", `tarn_node_volumes_staged{protocol="nfs"} 1` + "\n",
				`tarn_node_volumes_staged{protocol="iscsi"} 1` + "\n", `tarn_children_total{`,
			},
			"/": {nfs.id, block.id, nfs.node, host.Pool.Parent()},
		} {
			code, text, err := get(path)
			if err != nil || code != http.StatusOK {
				wrong += fmt.Sprintf("%s: %d, %v %s\n", path, code, err, text)
				continue
			}
			for _, part := range want {
				if !strings.Contains(text, part) {
					wrong += fmt.Sprintf("%s has no %s\n", path, strings.TrimSpace(part))
				}
			}
			if strings.Contains(text, "\ntarn_volume_conditions{") {
				wrong += path + " has conditions\n"
			}
		}
		return wrong == ""
	})
}

// A pod's own volume is made by the controller for a node that is another process,
// and destroyed with its pod.
func TestPodsOwnVolume(t *testing.T) {
	dir := t.TempDir()
	other := &harness.Daemon{Dir: dir, Pool: "p=" + host.Pool.Parent(), Args: []string{
		// Without iscsi, since it would sweep the other node's sessions.
		"--mode", "node", "--protocols", "nfs", "--ephemeral-pool", "p", "--controller-endpoint", host.Daemon.Endpoint(), "--reconcile-interval", "12h",
	}}
	if err := other.Start(deadline(t)); err != nil {
		t.Fatalf("%v\n%s", err, other.Log())
	}
	t.Cleanup(other.Kill)
	defer func() {
		if t.Failed() {
			t.Log(other.Log())
		}
	}()
	pod := csi.NewNodeClient(other.Conn())
	handle := "csi-" + strings.Repeat("0123456789abcdef", 4)
	target := filepath.Join(dir, "pod", "target")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	publish := &csi.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: target,
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		},
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "shop",
			"csi.storage.k8s.io/pod.uid": "u", "size": "32Mi", "mode": "770",
		},
	}
	for range 2 { // a kubelet repeats it
		must[*csi.NodePublishVolumeResponse](t, "NodePublishVolume")(pod.NodePublishVolume(deadline(t), publish))
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(target, &fs); err != nil || fs.Type != unix.NFS_SUPER_MAGIC {
		t.Errorf("the mount is %+v, %v", fs, err)
	}
	if err := os.WriteFile(filepath.Join(target, "data"), []byte("scratch"), 0o600); err != nil {
		t.Error(err)
	}
	var made []volume.Entry
	for _, e := range inventory(t) {
		if e.Ephemeral {
			made = append(made, e)
		}
	}
	if len(made) != 1 || made[0].Export != volume.ExportOpen || made[0].SizeBytes != 32<<20 || made[0].Owner.String() != "pod shop/web-0" {
		t.Errorf("made were %+v", made)
	}
	unpublish := &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target}
	for range 2 {
		must[*csi.NodeUnpublishVolumeResponse](t, "NodeUnpublishVolume")(pod.NodeUnpublishVolume(deadline(t), unpublish))
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
	for _, e := range inventory(t) {
		if e.Ephemeral {
			t.Errorf("%+v is left", e)
		}
	}
	if err := other.Stop(deadline(t)); err != nil {
		t.Error(err)
	}
}
