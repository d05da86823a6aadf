package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func (e *env) expand(r ExpandRequest) (size int64, err error) {
	err = e.call(func(ctx context.Context) error {
		size, err = e.s.Expand(ctx, r)
		return err
	})
	return size, err
}

// grow is what the storage host does: nothing on this node changes by it.
func (v *vol) grow(bytes int64) {
	if v.lun != nil {
		v.lun.size = bytes
	} else {
		v.export.size = bytes
	}
}

// wantBytes fails the test unless the workload can use that much.
func (v *vol) wantBytes(want int64) {
	v.e.t.Helper()
	var got int64
	switch {
	case v.lun == nil:
		got = v.export.size
	case v.isBlock():
		got = v.e.sessions[v.iqn].size
	default:
		got = v.lun.fsSize
	}
	if got != want {
		v.e.t.Errorf("%d bytes can be used, want %d", got, want)
	}
}

func TestExpand(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		target := e.path("pods/p1/vol")
		must(t, e.stage(v.stageRequest()))
		must(t, e.publish(v.publishRequest(target)))
		bytes := int64(100 * mib)
		for name, r := range map[string]ExpandRequest{
			"staging path":              {Path: v.staging},
			"target path":               {Path: target},
			"target and staging":        {Path: target, StagingPath: v.staging},
			"with the type":             {Path: target, Type: v.cap.Type},
			"an unknown staging path":   {Path: target, StagingPath: e.path("staging/old")},
			"below the limit":           {Path: target, LimitBytes: 1 << 40},
			"after the state was lost":  {Path: target},
			"without any size":          {Path: v.staging, RequiredBytes: -1},
			"when it is larger already": {Path: v.staging, RequiredBytes: mib},
		} {
			if name == "after the state was lost" {
				e.loseState()
			}
			if v.isBlock() && r.Path == v.staging {
				must(t, e.stage(v.stageRequest())) // the record, where it was lost
			}
			want := bytes + 100*mib
			switch r.RequiredBytes {
			case 0:
				r.RequiredBytes = want
			case -1:
				r.RequiredBytes = 0
			}
			bytes = want
			r.VolumeID = v.id
			v.grow(want)
			if name == "when it is larger already" {
				// Nothing needs to be asked of the disk, so nothing new is seen.
				if size, err := e.expand(r); err != nil || size < mib {
					t.Errorf("%s: %d, %v", name, size, err)
				}
				continue
			}
			for range 2 {
				if size, err := e.expand(r); err != nil || size != want {
					t.Errorf("%s: %d, %v, want %d", name, size, err, want)
				}
				v.wantBytes(want)
			}
		}
		must(t, e.unpublish(v, target))
		if v.isBlock() {
			must(t, e.stage(v.stageRequest()))
		}
		must(t, e.unstage(v, v.staging))
		e.wantClean()
	})
}

func TestExpandOfWhatIsNotThere(t *testing.T) {
	eachKind(t, func(t *testing.T, e *env, v *vol) {
		other := e.disk("pvc-other", ext4())
		target := e.path("pods/p1/vol")
		for _, published := range []bool{false, true} {
			for name, r := range map[string]ExpandRequest{
				"a path where nothing is":       {VolumeID: v.id, Path: e.path("pods/p2/vol")},
				"a relative path":               {VolumeID: v.id, Path: "some/path"},
				"an unknown volume":             {VolumeID: "tank/nobody", Path: target},
				"an id that could not be ours":  {VolumeID: "../x", Path: target},
				"another volume's staging path": {VolumeID: v.id, Path: other.staging},
				"another volume's target":       {VolumeID: other.id, Path: target},
				"the root disk":                 {VolumeID: v.id, Path: e.dir},
			} {
				if _, err := e.expand(r); !errors.Is(err, fault.NotFound) {
					t.Errorf("published %v: %s: %v", published, name, err)
				}
				if _, err := e.stats(r.VolumeID, r.Path); !errors.Is(err, fault.NotFound) {
					t.Errorf("published %v: stats of %s: %v", published, name, err)
				}
			}
			if !published {
				must(t, e.stage(v.stageRequest()))
				must(t, e.stage(other.stageRequest()))
				must(t, e.publish(v.publishRequest(target)))
			}
		}
		_, err := e.expand(ExpandRequest{VolumeID: v.id, Path: target, StagingPath: other.staging})
		wantKind(t, err, fault.NotFound, other.id)
	})
}

func TestExpandRefuses(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	must(t, e.stage(v.stageRequest()))
	e.s.resizeTimeout = 100 * time.Millisecond
	for name, c := range map[string]struct {
		r    ExpandRequest
		kind error
	}{
		"more than the disk has":       {ExpandRequest{RequiredBytes: v.lun.size + 1}, fault.Range},
		"less than the disk has":       {ExpandRequest{LimitBytes: v.lun.size - 1}, fault.Range},
		"a limit below the required":   {ExpandRequest{RequiredBytes: 2, LimitBytes: 1}, fault.Invalid},
		"a negative size":              {ExpandRequest{RequiredBytes: -1}, fault.Invalid},
		"a negative limit":             {ExpandRequest{LimitBytes: -1}, fault.Invalid},
		"the other access type":        {ExpandRequest{Type: access.Block}, fault.Invalid},
		"a staging path that is none":  {ExpandRequest{StagingPath: "a/b"}, fault.Invalid},
		"a volume path that is absent": {ExpandRequest{Path: "-"}, fault.Invalid},
	} {
		c.r.VolumeID = v.id
		switch c.r.Path {
		case "":
			c.r.Path = v.staging
		case "-":
			c.r.Path = ""
		}
		if _, err := e.expand(c.r); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := e.nfs("pvc-2")
	must(t, e.stage(n.stageRequest()))
	_, err := e.expand(ExpandRequest{VolumeID: n.id, Path: n.staging, RequiredBytes: n.export.size + 2*mib})
	wantKind(t, err, fault.Range)
}

func TestExpandWaitsForADiskThatShowsItsSizeLate(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", xfs())
	must(t, e.stage(v.stageRequest()))
	v.grow(200 * mib)
	v.lun.late = 2
	if size, err := e.expand(ExpandRequest{VolumeID: v.id, Path: v.staging, RequiredBytes: 200 * mib}); err != nil || size != 200*mib {
		t.Errorf("%d, %v", size, err)
	}
	v.wantBytes(200 * mib)
}

func TestExpandOfALostSession(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", block())
	target := e.path("pods/p1/vol")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	v.grow(200 * mib)
	v.lun.readError = true
	_, err := e.expand(ExpandRequest{VolumeID: v.id, Path: target, RequiredBytes: 200 * mib})
	wantKind(t, err, fault.Unavailable)
	e.drop(v.iqn)
	_, err = e.expand(ExpandRequest{VolumeID: v.id, Path: v.staging, RequiredBytes: 200 * mib})
	wantKind(t, err, fault.Unavailable)
	if _, err := e.stats(v.id, v.staging); !errors.Is(err, fault.Unavailable) {
		t.Errorf("stats: %v", err)
	}
}

// The caller gets its answer, and the volume stays locked until the disk answers
// or the child is gone.
func TestExpandEndsWithTheCallersDeadline(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", block())
	must(t, e.stage(v.stageRequest()))
	v.grow(200 * mib)
	v.lun.hang = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.s.Expand(ctx, ExpandRequest{VolumeID: v.id, Path: v.staging, RequiredBytes: 200 * mib}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestExpandOfWhatIsMountedReadOnly(t *testing.T) {
	e := newEnv(t)
	v := e.disk("pvc-1", ext4())
	v.lun.content = "ext4"
	v.cap.Mode = access.SingleNodeReaderOnly
	target := e.path("pods/p1/vol")
	must(t, e.stage(v.stageRequest()))
	must(t, e.publish(v.publishRequest(target)))
	v.grow(200 * mib)
	_, err := e.expand(ExpandRequest{VolumeID: v.id, Path: target, RequiredBytes: 200 * mib})
	wantKind(t, err, fault.Precondition, "read-only")

	// A read-only publication of what is staged writable is grown where it can
	// be written.
	w := e.disk("pvc-2", ext4())
	must(t, e.stage(w.stageRequest()))
	r := w.publishRequest(e.path("pods/p2/vol"))
	r.ReadOnly = true
	must(t, e.publish(r))
	w.grow(200 * mib)
	if _, err := e.expand(ExpandRequest{VolumeID: w.id, Path: r.TargetPath, RequiredBytes: 200 * mib}); err != nil {
		t.Error(err)
	}
	w.wantBytes(200 * mib)
}
