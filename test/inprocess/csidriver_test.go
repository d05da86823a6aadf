package inprocess

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/node"
)

// tokens is the key under which Kubernetes hands over tokens of a pod's account.
const tokens = "csi.storage.k8s.io/serviceAccount.tokens"

// A claim is a volume on its way to a pod, as a kubelet goes it.
type claim struct {
	answers
	d    *Driver
	c    csiv1.ControllerClient
	n    csiv1.NodeClient
	id   string
	use  *csiv1.VolumeCapability
	seen *options
	log  *strings.Builder

	opened          map[string]string // the publish context
	staging, target string
}

// options are what a node's mounts were made with.
type options struct {
	node.Mounter
	given [][]string
}

func (o *options) Mount(ctx context.Context, source, target, fsType string, opts, sensitive []string) error {
	o.given = append(o.given, append(slices.Clone(opts), sensitive...))
	return o.Mounter.Mount(ctx, source, target, fsType, opts, sensitive)
}

// each runs a test with a volume of each protocol that is made and published.
func each(t *testing.T, test func(*claim), change ...func(*Parts)) {
	for _, protocol := range []string{"nfs", "iscsi"} {
		t.Run(protocol, func(t *testing.T) {
			v := &claim{answers: answers{t}, seen: &options{}, log: &strings.Builder{}, use: mountCapability("")}
			if protocol == "iscsi" {
				v.use = mountCapability("ext4")
			}
			v.d = Start(t, append(change, func(p *Parts) {
				v.seen.Mounter = p.Mounter
				p.Mounter = v.seen
			})...)
			v.d.Logger().SetOutput(v.log)
			v.d.Logger().SetLevel(logrus.TraceLevel)
			conn, err := grpc.NewClient(v.d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			v.c, v.n = csiv1.NewControllerClient(conn), csiv1.NewNodeClient(conn)
			made, err := v.c.CreateVolume(t.Context(), &csiv1.CreateVolumeRequest{
				Name: "v", CapacityRange: &csiv1.CapacityRange{RequiredBytes: 64 << 20}, VolumeCapabilities: []*csiv1.VolumeCapability{v.use},
				Parameters: map[string]string{"protocol": protocol},
			}, grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			v.id = made.GetVolume().GetVolumeId()
			opened, err := v.c.ControllerPublishVolume(t.Context(), &csiv1.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: v.d.Node.ID.String(), VolumeCapability: v.use})
			if err != nil {
				t.Fatal(err)
			}
			v.opened = opened.GetPublishContext()
			kubelet := v.d.Storage.Dir("kubelet")
			v.staging, v.target = filepath.Join(kubelet, "staging"), filepath.Join(kubelet, "pod/mount")
			if err := errors.Join(os.MkdirAll(v.staging, 0o755), os.MkdirAll(filepath.Dir(v.target), 0o755)); err != nil {
				t.Fatal(err)
			}
			test(v)
		})
	}
}

func (v *claim) stage() error {
	_, err := v.n.NodeStageVolume(v.t.Context(), &csiv1.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.use, PublishContext: v.opened})
	return err
}

func (v *claim) publish(change ...func(*csiv1.NodePublishVolumeRequest)) error {
	r := &csiv1.NodePublishVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.target, VolumeCapability: v.use, PublishContext: v.opened}
	for _, c := range change {
		c(r)
	}
	_, err := v.n.NodePublishVolume(v.t.Context(), r)
	return err
}

// wantOnce says that there is one mount at the target.
func (v *claim) wantOnce() {
	v.t.Helper()
	if n, err := v.d.Node.Mounted(v.target); n != 1 || err != nil {
		v.t.Errorf("%d mounts at the target, %v", n, err)
	}
}

// info is a volume context with pairs.
func info(pairs ...string) func(*csiv1.NodePublishVolumeRequest) {
	return func(r *csiv1.NodePublishVolumeRequest) {
		r.VolumeContext = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			r.VolumeContext[pairs[i]] = pairs[i+1]
		}
	}
}

// TestCSIDriver has a test for each field of the CSIDriver object, of what the
// driver does when it is set: docs/csidriver.md.
func TestCSIDriver(t *testing.T) {
	t.Run("attachRequired", func(t *testing.T) {
		each(t, func(v *claim) {
			all, err := v.c.ControllerGetCapabilities(t.Context(), &csiv1.ControllerGetCapabilitiesRequest{})
			v.must(err)
			if !slices.ContainsFunc(all.GetCapabilities(), func(c *csiv1.ControllerServiceCapability) bool {
				return c.GetRpc().GetType() == csiv1.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
			}) {
				t.Error("an orchestrator would not publish")
			}
			// Nothing is used that was not opened to this node.
			_, err = v.c.ControllerUnpublishVolume(t.Context(), &csiv1.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: v.d.Node.ID.String()})
			v.must(err)
			if err := v.stage(); err == nil {
				t.Error("a volume that is closed was staged")
			}
			v.opened = nil
			v.wantCode(v.stage(), codes.InvalidArgument)
		})
	})
	t.Run("fsGroupPolicy", func(t *testing.T) {
		each(t, func(v *claim) {
			// The kubelet sets the group by itself, or nobody does.
			all, err := v.n.NodeGetCapabilities(t.Context(), &csiv1.NodeGetCapabilitiesRequest{})
			v.must(err)
			for _, c := range all.GetCapabilities() {
				if c.GetRpc().GetType() == csiv1.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP {
					t.Error("the kubelet would leave the group to the driver")
				}
			}
			v.use.GetMount().VolumeMountGroup = "1000"
			v.wantCode(v.stage(), codes.InvalidArgument)
		})
	})
	t.Run("nodeAllocatableUpdatePeriodSeconds", func(t *testing.T) {
		each(t, func(v *claim) {
			v.must(v.stage())
			before := len(v.seen.given)
			for range 100 {
				r, err := v.n.NodeGetInfo(t.Context(), &csiv1.NodeGetInfoRequest{})
				v.must(err)
				if r.GetMaxVolumesPerNode() != 40 || r.GetNodeId() != v.d.Node.ID.String() {
					t.Fatal(r)
				}
			}
			if len(v.seen.given) != before {
				t.Error("it is not cheap")
			}
		}, func(p *Parts) {
			p.Register = func(s *grpc.Server, i *csi.Identity, c *csi.Controller, n *csi.Node) {
				n.MaxVolumes = 40
				csi.Register(s, i, c, n)
			}
		})
	})
	t.Run("podInfoOnMount", func(t *testing.T) {
		each(t, func(v *claim) {
			v.must(v.stage())
			pod := func(name string) func(*csiv1.NodePublishVolumeRequest) {
				return info("csi.storage.k8s.io/pod.name", name, "csi.storage.k8s.io/pod.namespace", "default", "csi.storage.k8s.io/pod.uid", "uid-"+name,
					"csi.storage.k8s.io/serviceAccount.name", "default", "csi.storage.k8s.io/ephemeral", "false", "csi.storage.k8s.io/of.a.later.version", name)
			}
			v.must(v.publish(pod("web-0")))
			v.must(v.publish(pod("web-1")))
			v.must(v.publish())
			v.wantOnce()
		})
	})
	t.Run("preventPodSchedulingIfMissing", func(t *testing.T) {
		// What registers a node is answered before the driver is ready.
		each(t, func(v *claim) {
			if _, err := v.n.NodeGetInfo(t.Context(), &csiv1.NodeGetInfoRequest{}); err != nil {
				t.Error(err)
			}
			conn, err := grpc.NewClient(v.d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
			v.must(err)
			defer conn.Close()
			identity := csiv1.NewIdentityClient(conn)
			if r, err := identity.GetPluginInfo(t.Context(), &csiv1.GetPluginInfoRequest{}); err != nil || r.GetName() != DriverName {
				t.Errorf("%v, %v", r, err)
			}
			if r, err := identity.Probe(t.Context(), &csiv1.ProbeRequest{}); err != nil || r.GetReady().GetValue() {
				t.Errorf("the test needs a driver that is not ready: %v, %v", r, err)
			}
		}, func(p *Parts) {
			p.Register = func(s *grpc.Server, i *csi.Identity, c *csi.Controller, n *csi.Node) {
				i.Ready = func() error { return errors.New("the pool is away") }
				csi.Register(s, i, c, n)
			}
		})
	})
	t.Run("requiresRepublish", func(t *testing.T) {
		each(t, func(v *claim) {
			v.must(v.stage())
			for _, token := range []string{"first", "second", "third"} {
				v.must(v.publish(info(tokens, token)))
				v.wantOnce()
			}
			// One that fails takes nothing away from the pod that runs.
			v.wantCode(v.publish(func(r *csiv1.NodePublishVolumeRequest) { r.Readonly = true }), codes.AlreadyExists)
			v.wantOnce()
		})
	})
	t.Run("seLinuxMount", func(t *testing.T) {
		each(t, func(v *claim) {
			const context = `context="system_u:object_r:container_file_t:s0:c1,c2"`
			v.use.GetMount().MountFlags = []string{context}
			v.must(v.stage())
			v.must(v.publish())
			v.wantOnce()
			if len(v.seen.given) != 1 || !slices.Contains(v.seen.given[0], context) {
				t.Errorf("it is mounted with %q", v.seen.given)
			}
			// Pods of two labels are kept apart by the kubelet; a repeat relabels nothing.
			v.use.GetMount().MountFlags = []string{strings.Replace(context, "c2", "c3", 1)}
			v.must(v.stage())
			if len(v.seen.given) != 1 {
				t.Errorf("a repeat mounted with %q", v.seen.given)
			}
		})
	})
	secretly := func(t *testing.T, change func(*csiv1.NodePublishVolumeRequest)) {
		each(t, func(v *claim) {
			v.must(v.stage())
			v.must(v.publish(change))
			v.must(v.publish())
			v.wantOnce()
			v.wantCode(v.publish(change, func(r *csiv1.NodePublishVolumeRequest) { r.Readonly = true }), codes.AlreadyExists)
			if strings.Contains(v.log.String(), "sentinel") || !strings.Contains(v.log.String(), v.id) {
				t.Errorf("the log is %s", v.log)
			}
		})
	}
	t.Run("serviceAccountTokenInSecrets", func(t *testing.T) {
		secretly(t, func(r *csiv1.NodePublishVolumeRequest) {
			r.Secrets = map[string]string{tokens: `{"":{"token":"sentinel"}}`}
		})
	})
	t.Run("storageCapacity", func(t *testing.T) {
		each(t, func(v *claim) {
			zone := &csiv1.Topology{Segments: map[string]string{"example.com/zone": "a"}}
			r, err := v.c.GetCapacity(t.Context(), &csiv1.GetCapacityRequest{
				VolumeCapabilities: []*csiv1.VolumeCapability{v.use}, AccessibleTopology: zone,
				// As csi-provisioner sends a class: with its own keys.
				Parameters: map[string]string{"pool": "tank", "csi.storage.k8s.io/fstype": "ext4"},
			})
			if err != nil || r.GetAvailableCapacity() <= 0 || r.GetMaximumVolumeSize().GetValue() <= 0 {
				t.Errorf("%v, %v", r, err)
			}
			_, err = v.c.GetCapacity(t.Context(), &csiv1.GetCapacityRequest{Parameters: map[string]string{"pool": "elsewhere"}})
			v.wantCode(err, codes.InvalidArgument)
		})
	})
	t.Run("tokenRequests", func(t *testing.T) { secretly(t, info(tokens, `{"":{"token":"sentinel"}}`)) })
	t.Run("volumeLifecycleModes", func(t *testing.T) {
		each(t, func(v *claim) {
			inline := func(r *csiv1.NodePublishVolumeRequest) {
				r.VolumeId, r.StagingTargetPath, r.PublishContext = "csi-0123", "", nil
				r.VolumeContext = map[string]string{"csi.storage.k8s.io/ephemeral": "true", "size": "1Gi"}
			}
			err := v.publish(inline)
			v.wantCode(err, codes.FailedPrecondition)
			if !strings.Contains(status.Convert(err).Message(), "use a claim") || len(v.d.Node.Left()) > 0 {
				t.Errorf("an inline volume: %v, %v", err, v.d.Node.Left())
			}
		})
		// Where an administrator has allowed it, it lives from the one call to the other.
		each(t, func(v *claim) {
			inline := info("csi.storage.k8s.io/ephemeral", "true", "csi.storage.k8s.io/pod.name", "web-0", "csi.storage.k8s.io/pod.namespace", "shop")
			v.must(v.publish(func(r *csiv1.NodePublishVolumeRequest) {
				r.VolumeId, r.StagingTargetPath, r.PublishContext, r.VolumeCapability = "csi-0123", "", nil, mountCapability("")
			}, inline))
			v.wantOnce()
			_, err := v.n.NodeUnpublishVolume(t.Context(), &csiv1.NodeUnpublishVolumeRequest{VolumeId: "csi-0123", TargetPath: v.target})
			v.must(err)
			if all, err := v.d.below(); err != nil || len(all) != 1 || len(v.d.Node.Left()) > 0 {
				t.Errorf("left are %q, %q, %v", all, v.d.Node.Left(), err)
			}
		}, func(p *Parts) { p.Pods.Pool = "tank" })
	})
}
