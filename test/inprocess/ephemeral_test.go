package inprocess

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/ephemeral"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// handle is what a kubelet calls such a volume.
const handle = "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// pods is a kubelet whose pods have volumes of their own.
type pods struct {
	*Driver
	answers
	t    *testing.T
	n    csiv1.NodeClient
	c    csiv1.ControllerClient
	gate *gate
	// protocol is that of the volumes.
	protocol string
	config   ephemeral.Config
	chap     chap.Mode
	// empty is what there is without any volume.
	empty []string
}

// gate is a controller that goes away after a number of calls. It asks the real
// one in this process, or over its socket.
type gate struct {
	ephemeral.Controller
	left int // calls until then; negative is never
}

func (g *gate) pass() error {
	if g.left == 0 {
		return fault.New(fault.Unavailable, "nobody listens")
	}
	g.left--
	return nil
}

func (g *gate) Get(ctx context.Context, id string) (volume.Volume, error) {
	if err := g.pass(); err != nil {
		return volume.Volume{}, err
	}
	return g.Controller.Get(ctx, id)
}

func (g *gate) Create(ctx context.Context, r volume.CreateRequest) (volume.Volume, error) {
	if err := g.pass(); err != nil {
		return volume.Volume{}, err
	}
	return g.Controller.Create(ctx, r)
}

func (g *gate) Publish(ctx context.Context, r volume.PublishRequest) (map[string]string, error) {
	if err := g.pass(); err != nil {
		return nil, err
	}
	return g.Controller.Publish(ctx, r)
}

func (g *gate) Unpublish(ctx context.Context, id, node string) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Controller.Unpublish(ctx, id, node)
}

func (g *gate) Delete(ctx context.Context, id string) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Controller.Delete(ctx, id)
}

// eachOfPods runs a test for each protocol, with the controller in the node's
// process and with one behind a socket.
func eachOfPods(t *testing.T, test func(*pods)) {
	for _, protocol := range []string{volume.NFS, volume.ISCSI} {
		for _, way := range []string{"same process", "socket"} {
			t.Run(protocol+", "+way, func(t *testing.T) { test(newPods(t, protocol, way == "socket")) })
		}
	}
}

func newPods(t *testing.T, protocol string, socket bool) *pods {
	p := &pods{answers: answers{t}, t: t, gate: &gate{left: -1}, protocol: protocol, chap: chap.Derived}
	p.config = ephemeral.Config{Pool: "tank", Protocols: []string{volume.NFS, volume.ISCSI}, DefaultBytes: 64 << 20, MaxBytes: 1 << 30, MaxVolumes: 3}
	p.Driver = Start(t, func(parts *Parts) {
		parts.Pods, parts.CHAP = p.config, p.chap
		parts.Controller = func(c ephemeral.Controller) ephemeral.Controller {
			p.gate.Controller = c
			return p.gate
		}
	})
	if socket {
		remote, err := csi.NewRemote(p.socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = remote.Close() })
		p.gate.Controller = remote
		p.change = append(p.change, func(parts *Parts) {
			parts.Controller = func(ephemeral.Controller) ephemeral.Controller { return p.gate }
		})
	}
	conn, err := grpc.NewClient(p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p.n, p.c = csiv1.NewNodeClient(conn), csiv1.NewControllerClient(conn)
	_, err = p.n.NodeGetInfo(t.Context(), &csiv1.NodeGetInfoRequest{})
	p.must(err)
	p.empty = p.left()
	return p
}

func (p *pods) target(handle string) string {
	return filepath.Join(p.Storage.Dir("pods"), handle, "mount")
}

// publish makes a volume with attributes, given as KEY=VALUE.
func (p *pods) publish(handle string, attributes ...string) error {
	return p.publishWith(handle, func(*csiv1.NodePublishVolumeRequest) {}, attributes...)
}

func (p *pods) publishWith(handle string, change func(*csiv1.NodePublishVolumeRequest), attributes ...string) error {
	r := &csiv1.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: p.target(handle), VolumeCapability: mountCapability(""),
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "shop",
			"csi.storage.k8s.io/pod.uid": "u", "csi.storage.k8s.io/serviceAccount.name": "default", "protocol": p.protocol,
		},
	}
	for _, a := range attributes {
		key, value, _ := strings.Cut(a, "=")
		r.VolumeContext[key] = value
	}
	change(r)
	if err := os.MkdirAll(filepath.Dir(r.TargetPath), 0o755); err != nil && !strings.Contains(r.TargetPath, "\x00") {
		p.t.Fatal(err)
	}
	_, err := p.n.NodePublishVolume(p.t.Context(), r)
	return err
}

func (p *pods) unpublish(handle string) error {
	_, err := p.n.NodeUnpublishVolume(p.t.Context(), &csiv1.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: p.target(handle)})
	return err
}

// left is all that there is of volumes anywhere.
func (p *pods) left() []string {
	p.t.Helper()
	list, err := p.below()
	p.must(err)
	list = append(append(append(list, p.Storage.Exports()...), p.Storage.Targets()...), p.Node.Left()...)
	list = append(list, p.Node.Violations()...)
	for _, dir := range []string{"state", "chap"} {
		err := filepath.WalkDir(p.Storage.Dir(dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && (!d.IsDir() || strings.Contains(path, "/ephemeral/")) {
				list = append(list, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		p.must(err)
	}
	return list
}

func (p *pods) wantNothing() {
	p.t.Helper()
	if left := p.left(); !slices.Equal(left, p.empty) {
		p.t.Errorf("left is %q, there was %q", left, p.empty)
	}
}

// wantAll says that so many volumes are there, each at its target path.
func (p *pods) wantAll(handles ...string) {
	p.t.Helper()
	list, err := p.below()
	p.must(err)
	if len(list) != len(handles) {
		p.t.Errorf("there are %q", list)
	}
	for _, h := range handles {
		if n, err := p.Node.Mounted(p.target(h)); n != 1 || err != nil {
			p.t.Errorf("%d mounts of %s, %v", n, h, err)
		}
	}
}

func TestLifeOfAPodsVolume(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		data := []byte("what the pod has written")
		p.must(p.publish(handle))
		p.wantAll(handle)
		p.must(p.Node.Write(p.target(handle), false, data))
		for range 2 {
			// The pod's names, and its account's tokens, are no part of the request.
			p.must(p.publish(handle, "csi.storage.k8s.io/pod.name=other", "csi.storage.k8s.io/serviceAccount.tokens=sentinel"))
			p.Restart()
			p.wantAll(handle)
		}
		list, err := p.Volumes.Inventory(t.Context())
		if err != nil || len(list) != 1 || !list[0].Ephemeral || list[0].Owner.String() != "pod shop/web-0" || list[0].SizeBytes != 64<<20 || list[0].Export != volume.ExportOpen {
			t.Errorf("%+v, %v", list, err)
		}
		known, there, err := ephemeral.Volumes(filepath.Join(p.Storage.Dir("state"), "ephemeral"))
		if err != nil || !there || len(known) != 1 || !known[list[0].ID] {
			t.Errorf("the records name %v, %v, %v", known, there, err)
		}
		stats, err := p.n.NodeGetVolumeStats(t.Context(), &csiv1.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: p.target(handle)})
		if err != nil || len(stats.GetUsage()) != 2 {
			t.Errorf("%v, %v", stats, err)
		}
		health, err := p.n.NodeGetVolumeHealth(t.Context(), &csiv1.NodeGetVolumeHealthRequest{VolumeId: handle, VolumePublishPath: p.target(handle)})
		if err != nil || health.GetVolumeHealth().GetVolumeId() != handle || len(health.GetVolumeHealth().GetHealthStatuses()) > 0 {
			t.Errorf("%v, %v", health, err)
		}
		if got, err := p.Node.Read(p.target(handle), false, len(data)); err != nil || string(got) != string(data) {
			t.Errorf("it holds %q, %v", got, err)
		}
		// After a reboot nothing is mounted, and the pod starts again.
		for _, left := range slices.Backward(p.Node.Left()) {
			if path, is := strings.CutPrefix(left, "mount "); is {
				p.must(p.Node.Unmount(t.Context(), path))
			}
		}
		p.must(p.publish(handle))
		p.wantAll(handle)
		if got, err := p.Node.Read(p.target(handle), false, len(data)); err != nil || string(got) != string(data) {
			t.Errorf("it holds %q, %v", got, err)
		}
		p.must(p.unpublish(handle))
		p.wantNothing()
		p.Restart()
		p.must(p.unpublish(handle))
		// A new one has nothing of it.
		p.must(p.publish(handle))
		if got, err := p.Node.Read(p.target(handle), false, len(data)); err == nil && string(got) == string(data) {
			t.Errorf("it holds %q", got)
		}
		p.must(p.unpublish(handle))
		p.wantNothing()
	})
}

func TestVolumesOfTwoPods(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		const other = "csi-fedc"
		p.must(p.publish(handle, "size=100Mi"))
		p.must(p.publish(other))
		p.wantAll(handle, other)
		p.must(p.Node.Write(p.target(other), false, []byte("b")))
		p.must(p.unpublish(handle))
		p.wantAll(other)
		if got, err := p.Node.Read(p.target(other), false, 1); err != nil || string(got) != "b" {
			t.Errorf("it holds %q, %v", got, err)
		}
		p.must(p.unpublish(other))
		p.wantNothing()
	})
}

// Whenever the controller goes away, and the driver ends meanwhile, a repeat
// completes what was begun, and an unpublish undoes it.
func TestControllerGoesAwayFromAPodsVolume(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		for after := range 20 {
			p.gate.left = after
			err := p.publish(handle)
			if err == nil {
				if after < 3 {
					t.Errorf("published after %d calls", after)
				}
				break
			}
			p.wantCode(err, codes.Unavailable)
			// As the kubelet does that has given up.
			p.Restart()
			switch err := p.unpublish(handle); {
			case after == 0:
				// Nothing was begun, so nobody has to be asked.
				p.must(err)
				p.wantNothing()
			default:
				p.wantCode(err, codes.Unavailable)
			}
			p.Restart()
			p.gate.left = -1
			if after%2 == 0 {
				p.must(p.publish(handle))
				p.wantAll(handle)
			}
			p.must(p.unpublish(handle))
			p.wantNothing()
		}
		// It is there, and runs on.
		p.gate.left = 0
		p.Restart()
		p.must(p.publish(handle))
		p.wantAll(handle)
		for after := range 20 {
			p.gate.left = after
			err := p.unpublish(handle)
			if err == nil {
				break
			}
			p.wantCode(err, codes.Unavailable)
			p.Restart()
		}
		p.wantNothing()
	})
}

// Of a controller that goes on while its caller is told that it does not answer,
// the volume is found.
func TestLostAnswerAboutAPodsVolume(t *testing.T) {
	p := newPods(t, volume.NFS, false)
	p.gate.Controller = lossy{p.gate.Controller}
	p.wantCode(p.publish(handle), codes.Unavailable)
	if list, err := p.below(); err != nil || len(list) != 1 {
		t.Fatalf("%q, %v", list, err)
	}
	p.Restart()
	p.must(p.unpublish(handle))
	p.wantNothing()
}

// lossy makes volumes, and its answers do not arrive.
type lossy struct{ ephemeral.Controller }

func (l lossy) Create(ctx context.Context, r volume.CreateRequest) (volume.Volume, error) {
	if v, err := l.Controller.Create(ctx, r); err != nil {
		return v, err
	}
	return volume.Volume{}, fault.New(fault.Unavailable, "the connection is lost")
}

// Nobody unpublishes what was refused, so nothing is left of it.
func TestRefusedVolumesOfPods(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		for _, a := range []string{
			"pool=tank", "parent=tank/csi", "zfs.dedup=on", "zfs.copies=3", "zfs.compression=gzip-9", "zfs.checksum=sha512", "zfs.mountpoint=/etc",
			"zfs.recordsize=512", "zfs.volblocksize=512", "zfs.sync=always", "mountOptions=suid", "squash=none", "thin=false", "cloneMode=full", "Size=1Gi", "secret=x",
			"size=2Gi", "size=0", "size=-1", "size=", "size=1.5Gi", "size=1GiB", "size=+1", "size=9223372036854775808", "size=9223372036854775807Ki", "size=1e3",
			"protocol=smb", "protocol=", "mode=4755", "uid=root", "gid=-1", "fsType=btrfs", "size=1073741825",
		} {
			err := p.publish(handle, a)
			p.wantCode(err, codes.InvalidArgument)
			key, _, _ := strings.Cut(a, "=")
			if !strings.Contains(status.Convert(err).Message(), key) {
				t.Errorf("%s: %v", a, err)
			}
			p.wantNothing()
		}
		for what, change := range map[string]func(*csiv1.NodePublishVolumeRequest){
			"block":       func(r *csiv1.NodePublishVolumeRequest) { r.VolumeCapability = blockCapability() },
			"many nodes":  func(r *csiv1.NodePublishVolumeRequest) { r.VolumeCapability.AccessMode.Mode = 5 },
			"our id":      func(r *csiv1.NodePublishVolumeRequest) { r.VolumeId = "tank/v" },
			"a path":      func(r *csiv1.NodePublishVolumeRequest) { r.VolumeId = ".." },
			"no path":     func(r *csiv1.NodePublishVolumeRequest) { r.TargetPath = "pods/x" },
			"odd path":    func(r *csiv1.NodePublishVolumeRequest) { r.TargetPath += "/../x" },
			"filesystem":  func(r *csiv1.NodePublishVolumeRequest) { r.VolumeCapability = mountCapability("btrfs") },
			"mount group": func(r *csiv1.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "1" },
		} {
			if err := p.publishWith(handle, change); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", what, err)
			}
			p.wantNothing()
		}
		_ = os.RemoveAll("pods")
		// What is at the target path is somebody's.
		p.must(os.MkdirAll(filepath.Join(p.target(handle), "something"), 0o755))
		p.wantCode(p.publish(handle), codes.FailedPrecondition)
		p.wantNothing()
	})
}

// What is of no use for the other protocol is refused by the controller, after the
// volume was begun.
func TestAttributesOfPodsVolumes(t *testing.T) {
	taken := map[string][]string{
		volume.NFS: {"size=100Mi", "uid=1000", "gid=1000", "mode=0770", "zfs.compression=lz4", "zfs.recordsize=16K", "zfs.atime=off", "zfs.xattr=sa",
			"zfs.acltype=posix", "zfs.sync=disabled"},
		volume.ISCSI: {"size=100Mi", "fsType=ext3", "zfs.compression=off", "zfs.volblocksize=8K", "zfs.sync=standard"},
	}
	named := map[string]bool{"protocol": true}
	eachOfPods(t, func(p *pods) {
		p.must(p.publish(handle, taken[p.protocol]...))
		p.must(p.publish(handle, taken[p.protocol]...))
		p.wantCode(p.publish(handle), codes.AlreadyExists)
		p.wantAll(handle)
		p.must(p.unpublish(handle))
		p.wantNothing()
		for protocol, attributes := range taken {
			for _, a := range attributes {
				key, _, _ := strings.Cut(a, "=")
				named[key] = true
				if protocol != p.protocol && !slices.ContainsFunc(taken[p.protocol], func(b string) bool { return strings.HasPrefix(b, key+"=") }) {
					p.wantCode(p.publish(handle, a), codes.InvalidArgument)
					p.wantNothing()
				}
			}
		}
	})
	if have := slices.Sorted(maps.Keys(named)); !slices.Equal(have, ephemeral.KnownAttributes()) {
		t.Errorf("tried are %q, there are %q", have, ephemeral.KnownAttributes())
	}
}

// A volume that a pod has is not taken away by a call that is refused.
func TestRefusalLeavesThePodItsVolume(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		p.must(p.publish(handle))
		p.must(p.Node.Write(p.target(handle), false, []byte("a")))
		for _, change := range []func(*csiv1.NodePublishVolumeRequest){
			func(r *csiv1.NodePublishVolumeRequest) { r.Readonly = true },
			func(r *csiv1.NodePublishVolumeRequest) { r.TargetPath += "2" },
			func(r *csiv1.NodePublishVolumeRequest) { r.VolumeContext["size"] = "1Mi" },
		} {
			p.wantCode(p.publishWith(handle, change), codes.AlreadyExists)
		}
		_, err := p.n.NodeUnpublishVolume(t.Context(), &csiv1.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: p.target(handle) + "2"})
		p.must(err)
		p.wantAll(handle)
		if got, err := p.Node.Read(p.target(handle), false, 1); err != nil || string(got) != "a" {
			t.Errorf("it holds %q, %v", got, err)
		}
		// One that is in use stays, and goes later.
		end := p.Node.Hold(p.target(handle))
		p.wantCode(p.unpublish(handle), codes.FailedPrecondition)
		p.wantAll(handle)
		end()
		p.must(p.unpublish(handle))
		p.wantNothing()
	})
}

// What a volume was made with stays with it, whatever the configuration is by now.
func TestConfigurationChangesUnderAPodsVolume(t *testing.T) {
	p := newPods(t, volume.NFS, false)
	p.must(p.publish(handle))
	p.config.DefaultBytes, p.config.MaxBytes, p.config.Protocols = 32<<20, 32<<20, []string{volume.ISCSI}
	p.Restart()
	p.must(p.publish(handle))
	p.config.Pool = ""
	p.Restart()
	p.must(p.publish(handle))
	err := p.publish("csi-new")
	p.wantCode(err, codes.FailedPrecondition)
	if !strings.Contains(status.Convert(err).Message(), "ephemeral.pool") {
		t.Error(err)
	}
	p.wantAll(handle)
	p.must(p.unpublish(handle))
	p.wantNothing()
}

func TestANodeHasNotTooManyVolumesOfPods(t *testing.T) {
	p := newPods(t, volume.NFS, false)
	all := []string{"csi-1", "csi-2", "csi-3"}
	for _, h := range all {
		p.must(p.publish(h))
	}
	p.Restart()
	p.wantCode(p.publish("csi-4"), codes.ResourceExhausted)
	p.must(p.publish("csi-3"))
	p.wantAll(all...)
	p.must(p.unpublish("csi-4"))
	p.must(p.unpublish("csi-1"))
	p.must(p.publish("csi-4"))
}

// A volume that a class made is never taken for a pod's own.
func TestPersistentVolumesAreNoPods(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		persistent := func() {
			_, err := p.c.CreateVolume(t.Context(), &csiv1.CreateVolumeRequest{
				Name: "ephemeral-" + handle, VolumeCapabilities: []*csiv1.VolumeCapability{mountCapability("")}, Parameters: map[string]string{"protocol": p.protocol}})
			p.must(err)
		}
		persistent()
		if err := p.publish(handle); status.Code(err) != codes.AlreadyExists || !strings.Contains(status.Convert(err).Message(), "is not ephemeral") {
			t.Error(err)
		}
		p.must(p.unpublish(handle))
		list, err := p.below()
		if err != nil || len(list) != 1 {
			t.Fatalf("%q, %v", list, err)
		}
		_, err = p.c.DeleteVolume(t.Context(), &csiv1.DeleteVolumeRequest{VolumeId: strings.Replace(list[0], storage.Parent, "tank", 1)})
		p.must(err)
		// It is made between the look and the creation.
		p.gate.left = 1
		p.wantCode(p.publish(handle), codes.Unavailable)
		p.gate.left = -1
		persistent()
		p.must(p.unpublish(handle))
		if list, err := p.below(); err != nil || len(list) != 1 || harness.Container(list[0]) {
			t.Fatalf("%q, %v", list, err)
		}
		if left := p.left(); slices.ContainsFunc(left, func(s string) bool { return strings.Contains(s, "/ephemeral/") }) {
			t.Errorf("left is %q", left)
		}
	})
}

// A pool whose CHAP pairs come from secrets has none for a pod's volume.
func TestPodsVolumeInAPoolWithSecrets(t *testing.T) {
	p := newPods(t, volume.ISCSI, false)
	p.chap = chap.Secrets
	p.Restart()
	p.wantCode(p.publish(handle), codes.InvalidArgument)
	p.wantNothing()
}

// A pod that only reads has an empty filesystem.
func TestPodReadsItsVolume(t *testing.T) {
	eachOfPods(t, func(p *pods) {
		readOnly := func(r *csiv1.NodePublishVolumeRequest) { r.Readonly = true }
		for range 2 {
			p.must(p.publishWith(handle, readOnly))
		}
		if err := p.Node.Write(p.target(handle), false, []byte("a")); err == nil {
			t.Error("it can be written")
		}
		p.must(p.unpublish(handle))
		p.wantNothing()
	})
}

// On a node where no controller listens, which is every one but the storage host,
// nothing is begun, and so a pod that cannot start can end.
func TestPodsVolumeWhereThereIsNoController(t *testing.T) {
	p := newPods(t, volume.NFS, false)
	remote, err := csi.NewRemote(p.Storage.Dir("nobody.sock"))
	p.must(err)
	t.Cleanup(func() { _ = remote.Close() })
	p.gate.Controller = remote
	err = p.publish(handle)
	p.wantCode(err, codes.Unavailable)
	if !strings.Contains(status.Convert(err).Message(), "nobody.sock") {
		t.Error(err)
	}
	p.wantNothing()
	p.must(p.unpublish(handle))
}

// What somebody has damaged is told, and not forgotten.
func TestDamagedVolumeOfAPod(t *testing.T) {
	p := newPods(t, volume.NFS, false)
	p.must(p.publish(handle))
	list, err := p.below()
	p.must(err)
	d, err := p.Storage.Pool.Get(t.Context(), list[0])
	p.must(err)
	request, _ := d.Own("tarn:request")
	p.must(p.Storage.Pool.Set(t.Context(), list[0], zfs.Setting{Name: "tarn:request", Value: "{"}))
	err = p.unpublish(handle)
	p.wantCode(err, codes.FailedPrecondition)
	if !strings.Contains(status.Convert(err).Message(), "tarn:request") {
		t.Error(err)
	}
	p.must(p.Storage.Pool.Set(t.Context(), list[0], zfs.Setting{Name: "tarn:request", Value: request}))
	p.must(p.unpublish(handle))
	p.wantNothing()
}
