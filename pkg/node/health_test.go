package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// reasons are the conditions as "Status/Reason".
func reasons(list []Condition) []string {
	var all []string
	for _, c := range list {
		all = append(all, map[Status]string{Degraded: "degraded/", Inaccessible: "inaccessible/"}[c.Status]+c.Reason)
	}
	return all
}

func (e *env) wantHealth(r HealthRequest, want ...string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Second)
	defer cancel()
	list, err := e.s.VolumeHealth(ctx, r)
	if err != nil || !slices.Equal(reasons(list), want) {
		e.t.Errorf("got %+v, %v, want %q", list, err, want)
	}
}

func TestVolumeHealth(t *testing.T) {
	every := []string{"nfs", "ext4", "xfs", "block"}
	disks := []string{"ext4", "xfs"}
	for _, c := range []struct {
		name  string
		kinds []string
		spoil func(v *vol, target string)
		want  []string
	}{
		{"well", every, func(*vol, string) {}, nil},
		{"the records are lost", every, func(v *vol, _ string) { v.e.loseState() }, nil},
		{"the session is lost", []string{"ext4", "xfs", "block"}, func(v *vol, _ string) { v.lun.readError = true }, []string{"inaccessible/TargetUnreachable"}},
		{"the disk is gone", []string{"ext4", "xfs"}, func(v *vol, _ string) { v.e.drop(v.iqn) }, []string{"inaccessible/NotAttached"}},
		{"the block device is gone", []string{"block"}, func(v *vol, _ string) { v.e.drop(v.iqn) }, []string{"inaccessible/NotAttached", "inaccessible/NotPublished"}},
		{"unmounted by hand", []string{"nfs", "ext4", "xfs"}, func(v *vol, target string) { v.e.remove(v.staging) }, []string{"inaccessible/NotMounted"}},
		{"unbound by hand", every, func(v *vol, target string) { v.e.remove(target) }, []string{"inaccessible/NotPublished"}},
		{"read-only after an error", disks, func(v *vol, _ string) { v.super().ro = true }, []string{"degraded/FilesystemReadOnly"}},
		{"shut down", disks, func(v *vol, _ string) { v.super().dead = true }, []string{"inaccessible/FilesystemFailed"}},
		{"errors", disks, func(v *vol, _ string) { v.lun.errors = 3 }, []string{"degraded/FilesystemErrors"}},
		{"the server is silent", []string{"nfs"}, func(v *vol, _ string) { v.export.hang = true }, []string{"inaccessible/ServerNotResponding"}},
		{"the export is gone", []string{"nfs"}, func(v *vol, _ string) { v.export.stale = true }, []string{"inaccessible/FilesystemFailed"}},
	} {
		for _, kind := range c.kinds {
			t.Run(c.name+" "+kind, func(t *testing.T) {
				e := newEnv(t)
				e.s.aliveTimeout = 100 * time.Millisecond
				v := volumes[kind](e)
				target := e.path("pods/p1/vol")
				must(t, e.stage(v.stageRequest()))
				must(t, e.publish(v.publishRequest(target)))
				c.spoil(v, target)
				e.wantHealth(HealthRequest{VolumeID: v.id, PublishPath: target, StagingPath: v.staging}, c.want...)
			})
		}
	}
}

func (v *vol) super() *super {
	i, _ := v.e.top(v.staging)
	return v.e.supers[number{i.Major, i.Minor}]
}

func TestVolumeHealthAfterAReboot(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest()))
	e.reboot()
	e.start()
	e.wantHealth(HealthRequest{VolumeID: v.id}, "inaccessible/NotAttached", "inaccessible/NotMounted")
}

func TestAVolumeThatIsReadOnlyByIntentIsWell(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", with(ext4(), access.SingleNodeReaderOnly))
	v.lun.content = "ext4"
	must(t, e.stage(v.stageRequest()))
	e.wantHealth(HealthRequest{VolumeID: v.id, StagingPath: v.staging})
}

func TestVolumeHealthOfWhatIsNotThere(t *testing.T) {
	e := newEnv(t)
	v, other := e.disk("pvc-1", ext4()), e.nfs("pvc-2")
	must(t, e.stage(other.stageRequest()))
	for _, c := range []struct {
		r    HealthRequest
		kind error
	}{
		{HealthRequest{VolumeID: v.id}, fault.NotFound},
		{HealthRequest{VolumeID: v.id, PublishPath: e.path("pods/p1/vol"), StagingPath: v.staging}, fault.NotFound},
		{HealthRequest{VolumeID: v.id, StagingPath: other.staging}, fault.NotFound},
		{HealthRequest{VolumeID: "../x"}, fault.NotFound},
		{HealthRequest{}, fault.Invalid},
		{HealthRequest{VolumeID: v.id, PublishPath: "a/b"}, fault.Invalid},
		{HealthRequest{VolumeID: v.id, StagingPath: "/a/../b"}, fault.Invalid},
	} {
		if list, err := e.s.VolumeHealth(t.Context(), c.r); !errors.Is(err, c.kind) {
			t.Errorf("%+v: %v, %v", c.r, list, err)
		}
	}
}

// A caller with little time is told of a silent server all the same.
func TestASilentServerIsFoundWithinTheCallersTime(t *testing.T) {
	e := newEnv(t)
	v := e.nfs("pvc-1")
	must(t, e.stage(v.stageRequest()))
	v.export.hang = true
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	list, err := e.s.VolumeHealth(ctx, HealthRequest{VolumeID: v.id})
	if err != nil || !slices.Equal(reasons(list), []string{"inaccessible/ServerNotResponding"}) {
		t.Errorf("%+v, %v", list, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if list, err := e.s.VolumeHealth(ended, HealthRequest{VolumeID: v.id}); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestStorageHealth(t *testing.T) {
	e := newEnv(t)
	e.s.aliveTimeout = 100 * time.Millisecond
	want := func(want ...string) []Condition {
		t.Helper()
		list, err := e.s.StorageHealth(t.Context())
		if err != nil || !slices.Equal(reasons(list), want) {
			t.Errorf("got %+v, %v, want %q", list, err, want)
		}
		return list
	}
	want()
	a, b, n := e.disk("pvc-1", ext4()), e.disk("pvc-2", block()), e.nfs("pvc-3")
	for _, v := range []*vol{a, b, n} {
		must(t, e.stage(v.stageRequest()))
	}
	want()
	a.lun.readError = true
	want("degraded/SessionsLost")
	b.lun.readError = true
	want("inaccessible/PortalUnreachable")
	n.export.hang = true
	want("inaccessible/PortalUnreachable", "inaccessible/ServerNotResponding")
	e.s.Attachers[publish.NFS] = nfsClient{e.kernel, errors.New("no mount.nfs")}
	e.s.Attachers[publish.ISCSI] = notReady{initiator{e.kernel}}
	list := want("inaccessible/ISCSINotReady", "inaccessible/NFSNotReady", "inaccessible/PortalUnreachable", "inaccessible/ServerNotResponding")
	if list[1].Message != "no mount.nfs" {
		t.Errorf("%+v", list)
	}
	e.reboot()
	e.start()
	want() // what is not attached any more says nothing of its portal
}

type notReady struct{ initiator }

func (notReady) Ready(context.Context) error { return errors.New("no iscsid") }

var _ attach.Attacher = notReady{}

func TestConditionsOfOneKindAreOne(t *testing.T) {
	var list conditions
	list.add(Degraded, "A", "one %d", 1)
	list.add(Inaccessible, "A", "two")
	list.add(Degraded, "A", "three")
	want := []Condition{{Degraded, "A", "one 1; three"}, {Inaccessible, "A", "two"}}
	if !slices.Equal(list, want) {
		t.Errorf("got %+v", list)
	}
}
