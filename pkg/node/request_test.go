package node

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/publish"
)

func TestStageRequestsThatAreRefused(t *testing.T) {
	e := newEnv(t)
	disk, nfs := e.disk("pvc-1", ext4()), e.nfs("pvc-2")
	cases := []struct {
		name   string
		v      *vol
		change func(*StageRequest)
		kind   error
	}{
		{"no id", disk, func(r *StageRequest) { r.VolumeID = "" }, fault.Invalid},
		{"an id that is none", disk, func(r *StageRequest) { r.VolumeID = "../victim" }, fault.NotFound},
		{"no path", disk, func(r *StageRequest) { r.StagingPath = "" }, fault.Invalid},
		{"a relative path", disk, func(r *StageRequest) { r.StagingPath = "var/lib" }, fault.Invalid},
		{"a path with dots", disk, func(r *StageRequest) { r.StagingPath = "/var/../etc" }, fault.Invalid},
		{"a path that ends in a slash", disk, func(r *StageRequest) { r.StagingPath = "/var/" }, fault.Invalid},
		{"the root", disk, func(r *StageRequest) { r.StagingPath = "/" }, fault.Invalid},
		{"a zero byte", disk, func(r *StageRequest) { r.StagingPath = "/a\x00b" }, fault.Invalid},
		{"a very long path", disk, func(r *StageRequest) { r.StagingPath = "/" + strings.Repeat("a", 4095) }, fault.Invalid},
		{"no mode", disk, func(r *StageRequest) { r.Capability.Mode = 0 }, fault.Invalid},
		{"an unknown mode", disk, func(r *StageRequest) { r.Capability.Mode = 8 }, fault.Invalid},
		{"no publish context", disk, func(r *StageRequest) { r.PublishContext = nil }, fault.Invalid},
		{"C55: a share with dots", nfs, func(r *StageRequest) { r.PublishContext[publish.KeyShare] = "/tank/csi/../../root" }, fault.Invalid},
		{"C55: a server with an option", nfs, func(r *StageRequest) { r.PublishContext[publish.KeyServer] = "192.0.2.10,soft" }, fault.Invalid},
		{"another protocol", nfs, func(r *StageRequest) { r.VolumeContext = map[string]string{"protocol": "iscsi"} }, fault.Invalid},
		{"NFS as a block device", nfs, func(r *StageRequest) { r.Capability.Type = access.Block }, fault.Invalid},
		{"NFS with a disk's filesystem", nfs, func(r *StageRequest) { r.Capability.FSType = "ext4" }, fault.Invalid},
		{"btrfs", disk, func(r *StageRequest) { r.Capability.FSType = "btrfs" }, fault.Invalid},
		{"an option as filesystem", disk, func(r *StageRequest) { r.Capability.FSType = "ext4 -o suid" }, fault.Invalid},
		{"a writer among many on a disk", disk, func(r *StageRequest) { r.Capability.Mode = access.MultiNodeSingleWriter }, fault.Invalid},
		{"writers on a disk", disk, func(r *StageRequest) { r.Capability.Mode = access.MultiNodeMultiWriter }, fault.Invalid},
		{"remount", disk, func(r *StageRequest) { r.Capability.MountFlags = []string{"noatime,remount"} }, fault.Invalid},
		{"loop", disk, func(r *StageRequest) { r.VolumeContext = map[string]string{"mountOptions": "loop=/dev/loop0"} }, fault.Invalid},
	}
	for _, c := range cases {
		r := c.v.stageRequest()
		c.change(&r)
		if err := e.stage(r); !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.kind)
		}
	}
	if len(e.effects) != 0 {
		t.Errorf("side effects: %v", e)
	}
}

func TestAttributesThatNodesDoNotReadAreIgnored(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter})
	r := v.stageRequest()
	r.VolumeContext = map[string]string{
		"protocol": "iscsi", "fsType": "xfs",
		"storage.kubernetes.io/csiProvisionerIdentity": "1-2-tarn", "csi.storage.k8s.io/pv/name": "pvc-1",
	}
	must(t, e.stage(r))
	if v.lun.content != "xfs" {
		t.Errorf("formatted as %q, the attribute says xfs", v.lun.content)
	}
}

func TestWithoutAFilesystemTypeADiskGetsExt4(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter})
	must(t, e.stage(v.stageRequest()))
	if v.lun.content != "ext4" {
		t.Errorf("formatted as %q", v.lun.content)
	}
}

func TestPublishRequestsThatAreRefused(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, e.stage(v.stageRequest()))
	e.effects = nil
	cases := map[string]struct {
		change func(*PublishRequest)
		kind   error
	}{
		"no id":              {func(r *PublishRequest) { r.VolumeID = "" }, fault.Invalid},
		"an id that is none": {func(r *PublishRequest) { r.VolumeID = "/etc" }, fault.NotFound},
		"no target":          {func(r *PublishRequest) { r.TargetPath = "" }, fault.Invalid},
		"a relative target":  {func(r *PublishRequest) { r.TargetPath = "a" }, fault.Invalid},
		"no staging path":    {func(r *PublishRequest) { r.StagingPath = "" }, fault.Precondition},
		"a relative staging": {func(r *PublishRequest) { r.StagingPath = "a/b" }, fault.Invalid},
		"one path for both":  {func(r *PublishRequest) { r.TargetPath = r.StagingPath }, fault.Invalid},
		"no capability":      {func(r *PublishRequest) { r.Capability = access.Capability{} }, fault.Invalid},
		"ephemeral": {func(r *PublishRequest) {
			r.StagingPath = ""
			r.VolumeContext = map[string]string{"csi.storage.k8s.io/ephemeral": "true"}
		}, fault.Invalid},
		"not staged, and no context": {func(r *PublishRequest) {
			r.StagingPath, r.PublishContext = e.path("elsewhere"), nil
		}, fault.Precondition},
		"not staged, and a bad context": {func(r *PublishRequest) {
			r.StagingPath, r.PublishContext = e.path("elsewhere"), map[string]string{"protocol": "nfs"}
		}, fault.Invalid},
	}
	for name, c := range cases {
		r := v.publishRequest(e.path("pods/uid1/mount"))
		c.change(&r)
		if err := e.publish(r); !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v, want %v", name, err, c.kind)
		}
	}
	if len(e.effects) != 0 {
		t.Errorf("side effects: %v", e)
	}
}

func TestUndoRequestsThatAreRefused(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	for _, path := range []string{"", "a", "/a/..", "/"} {
		wantKind(t, e.s.Unstage(ctx, "tank/pvc-1", path), fault.Invalid)
		wantKind(t, e.s.Unpublish(ctx, "tank/pvc-1", path), fault.Invalid)
		wantKind(t, e.s.Unpublish(ctx, "not an id", path), fault.Invalid)
	}
	wantKind(t, e.s.Unstage(ctx, "", "/a"), fault.Invalid)
	wantKind(t, e.s.Unpublish(ctx, "", "/a"), fault.Invalid)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	e := newEnv(t)
	for name, change := range map[string]func(*Config){
		"no name":     func(c *Config) { c.NodeID = ident.NodeID{} },
		"no state":    func(c *Config) { c.StateDir = "" },
		"relative":    func(c *Config) { c.StateDir = "state" },
		"no protocol": func(c *Config) { c.Attachers = map[string]attach.Attacher{} },
		"no mounter":  func(c *Config) { c.Mounter = nil },
		"no tools":    func(c *Config) { c.Filesystems = nil },
		"no host":     func(c *Config) { c.Host = nil },
	} {
		c := e.config()
		change(&c)
		if _, err := New(c); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := e.config()
	if s, err := New(c); err != nil || s.Operations != c.Operations {
		t.Errorf("the table of operations is another: %v", err)
	}
	c.NFSOptions, c.Operations, c.Log = nil, nil, nil
	if _, err := New(c); err != nil {
		t.Error(err)
	}
	if got := e.s.ID(); got != nodeName+"@192.0.2.21" {
		t.Errorf("the id is %s", got)
	}
}

func TestReadyNamesWhatIsNot(t *testing.T) {
	e := newEnv(t)
	must(t, e.s.Ready(context.Background()))
	e.s.Attachers[publish.NFS] = nfsClient{kernel: e.kernel, ready: fault.New(fault.Unavailable, "mount.nfs is missing")}
	e.s.records.dir = e.path("gone")
	wantKind(t, e.s.Ready(context.Background()), fault.Unavailable, "mount.nfs", "stage records")
}

func TestStageBeyondThePublicationIsRefused(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	r := v.stageRequest()
	r.PublishContext = maps.Clone(r.PublishContext)
	r.PublishContext[publish.KeyMode] = access.SingleNodeWriter.String()
	r.Capability.Mode = access.MultiNodeMultiWriter
	if err := e.stage(r); fault.Kind(err) != fault.Precondition {
		t.Errorf("a stage for many nodes of what is published to one: %v", err)
	}
	r.Capability.Mode = access.SingleNodeWriter
	must(t, e.stage(r))
}
