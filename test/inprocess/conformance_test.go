package inprocess

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/csi"
	sanityv0 "github.com/tarn-csi/tarn/test/sanity/v0"
)

// use is one way in which volumes are used.
type use struct {
	name              string
	parameters, other map[string]string
	fsType            string
	block, multiNode  bool
	refusesOther      bool
}

var (
	overNFS = use{name: "nfs", multiNode: true, refusesOther: true,
		parameters: map[string]string{"protocol": "nfs"},
		other:      map[string]string{"protocol": "nfs", "zfs.compression": "lz4"}}
	asExt4 = use{name: "iscsi-ext4", fsType: "ext4",
		parameters: map[string]string{"protocol": "iscsi"},
		other:      map[string]string{"protocol": "iscsi", "zfs.volblocksize": "8K"}}
	asBlock = use{name: "iscsi-block", block: true, multiNode: true,
		parameters: map[string]string{"protocol": "iscsi"},
		other:      map[string]string{"protocol": "iscsi", "thin": "false"}}
)

// options are those of a suite that judges the driver.
func (d *Driver) options(u use) sanityv0.Options {
	return sanityv0.Options{
		Endpoint: d.Endpoint, Parameters: u.parameters, OtherParameters: u.other,
		Secrets: sanityv0.Secrets{
			CreateVolume:            map[string]string{"password": "sentinel-create"},
			ControllerPublishVolume: map[string]string{"password": "sentinel-publish"},
			NodeStageVolume:         map[string]string{"password": "sentinel-stage"},
			NodePublishVolume:       map[string]string{"password": "sentinel-node-publish"},
		},
		Block: u.block, FSType: u.fsType, MultiNode: u.multiNode, RefusesOtherAccess: u.refusesOther,
		OtherNodeID: OtherNodeID,
		StagingDir:  d.Storage.Dir(""), TargetDir: d.Storage.Dir(""),
		Host:    sanityv0.Host{MakeDir: makeDir, Mounted: d.Node.Mounted, Write: d.Node.Write, Read: d.Node.Read},
		Timeout: 10 * time.Second, RetryFor: 10 * time.Second,
	}
}

// makeDir makes a directory where there is nothing. A block volume's target path
// that was published before is a file.
func makeDir(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	return os.MkdirAll(path, 0o750)
}

// The driver keeps to csi.v0 for each kind of volume, also when the daemon is
// another one after each step of a volume's life, and leaves nothing behind.
func TestConformance(t *testing.T) {
	for _, u := range []use{overNFS, asExt4, asBlock} {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			d := Start(t)
			o := d.options(u)
			leftOut := map[string]string{"needs separate endpoints": "one process serves all services here"}
			if !u.multiNode {
				leftOut["supports volumes on several nodes"] = "a filesystem on one disk has one node"
			}
			restarts := 0
			o.Pause = func(context.Context, string) error {
				d.Restart()
				restarts++
				return nil
			}
			report, err := sanityv0.Execute(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Stopped != "" {
				t.Errorf("stopped: %s", report.Stopped)
			}
			for _, r := range report.Results {
				r.Judge(t, leftOut)
			}
			if restarts != 5 {
				t.Errorf("%d restarts, want one at each of the 5 points", restarts)
			}
			d.wantClean(t)
		})
	}
}

// wantClean fails the test unless nothing of any volume is left anywhere.
func (d *Driver) wantClean(t *testing.T) {
	t.Helper()
	if v := d.Node.Violations(); len(v) > 0 {
		t.Errorf("what must never be asked of a kernel: %q", v)
	}
	left := append(d.Node.Left(), d.Storage.Exports()...)
	left = append(left, d.Storage.ExportFiles()...)
	datasets, err := d.below()
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, datasets...)
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A server that has csi.v1 alone is none of csi.v0.
func TestCSIv1AloneFails(t *testing.T) {
	d := Start(t, func(p *Parts) {
		p.Register = func(s *grpc.Server, i *csi.Identity, c *csi.Controller, n *csi.Node) {
			csiv1.RegisterIdentityServer(s, i)
			csiv1.RegisterControllerServer(s, c)
			csiv1.RegisterNodeServer(s, n)
		}
	})
	sanityv0.MustFail(t, d.options(overNFS), "identity/the-endpoint-serves-csi-v0")
}
