package sanityv0

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// ledger knows what exists because of this run, or may exist after a call whose
// outcome is open. It reads it off the calls themselves, so that no check has to
// remember anything.
type ledger struct {
	mu sync.Mutex
	// open are requests for volumes of which no id is known, by name.
	open    map[string]*csi.CreateVolumeRequest
	volumes map[string]bool
	grants  map[place]bool // where: node id
	staged  map[place]bool // where: staging path
	targets map[place]bool // where: target path
	// made and stages count the successful CreateVolume and NodeStageVolume.
	made, stages int
}

// place is a volume somewhere.
type place struct{ volume, where string }

func newLedger() *ledger {
	return &ledger{
		open:    map[string]*csi.CreateVolumeRequest{},
		volumes: map[string]bool{},
		grants:  map[place]bool{},
		staged:  map[place]bool{},
		targets: map[place]bool{},
	}
}

// settled reports whether a call with this outcome has certainly changed nothing.
func settled(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.ResourceExhausted, codes.Unimplemented,
		codes.Aborted: // what is pending was begun by another call
		return true
	}
	return false
}

func (l *ledger) observe(req, resp proto.Message, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		if id := resp.(*csi.CreateVolumeResponse).GetVolume().GetId(); err == nil && id != "" {
			l.made++
			l.volumes[id] = true
			delete(l.open, r.GetName())
		} else if !settled(err) {
			l.open[r.GetName()] = proto.Clone(r).(*csi.CreateVolumeRequest)
		}
	case *csi.DeleteVolumeRequest:
		if err == nil {
			delete(l.volumes, r.GetVolumeId())
		}
	case *csi.ControllerPublishVolumeRequest:
		if !settled(err) {
			l.grants[place{r.GetVolumeId(), r.GetNodeId()}] = true
		}
	case *csi.ControllerUnpublishVolumeRequest:
		if err == nil {
			maps.DeleteFunc(l.grants, func(p place, _ bool) bool {
				return p.volume == r.GetVolumeId() && (r.GetNodeId() == "" || p.where == r.GetNodeId())
			})
		}
	case *csi.NodeStageVolumeRequest:
		if err == nil {
			l.stages++
		}
		if !settled(err) {
			l.staged[place{r.GetVolumeId(), r.GetStagingTargetPath()}] = true
		}
	case *csi.NodeUnstageVolumeRequest:
		if err == nil {
			delete(l.staged, place{r.GetVolumeId(), r.GetStagingTargetPath()})
		}
	case *csi.NodePublishVolumeRequest:
		if !settled(err) {
			l.targets[place{r.GetVolumeId(), r.GetTargetPath()}] = true
		}
	case *csi.NodeUnpublishVolumeRequest:
		if err == nil {
			delete(l.targets, place{r.GetVolumeId(), r.GetTargetPath()})
		}
	}
}

// teardown undoes all that the ledger knows of, in the order of a lifecycle's
// end. It goes on after a failure and returns all of them. It runs even when the
// suite's own context has ended.
func (s *suite) teardown() []error {
	ctx := context.WithoutCancel(s.ctx)
	l := s.ledger
	var errs []error
	note := func(err error, format string, args ...any) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", fmt.Sprintf(format, args...), describe(err)))
		}
	}
	for _, p := range known(l, l.targets) {
		_, err := s.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: p.volume, TargetPath: p.where})
		note(err, "NodeUnpublishVolume(%q, %s)", p.volume, p.where)
	}
	for _, p := range known(l, l.staged) {
		_, err := s.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: p.volume, StagingTargetPath: p.where})
		note(err, "NodeUnstageVolume(%q, %s)", p.volume, p.where)
	}
	for _, p := range known(l, l.grants) {
		_, err := s.controller.ControllerUnpublishVolume(ctx, s.unpublishRequest(p.volume, p.where))
		if status.Code(err) != codes.NotFound {
			note(err, "ControllerUnpublishVolume(%q, %q)", p.volume, p.where)
		}
	}
	l.mu.Lock()
	open := slices.Collect(maps.Values(l.open))
	l.mu.Unlock()
	for _, r := range open {
		// The way the specification shows: repeat the call to learn the id.
		if _, err := s.controller.CreateVolume(ctx, r); err != nil {
			note(err, "CreateVolume(%q), repeated to learn the id", r.GetName())
		}
	}
	l.mu.Lock()
	ids := slices.Sorted(maps.Keys(l.volumes))
	l.mu.Unlock()
	for _, id := range ids {
		_, err := s.controller.DeleteVolume(ctx, s.deleteRequest(id))
		note(err, "DeleteVolume(%q)", id)
	}
	for _, path := range s.paths {
		note(s.o.Host.Remove(path), "remove %s", path)
	}
	s.paths, s.volumes = nil, map[string]*volume{}
	return errs
}

// known lists a part of the ledger in a stable order.
func known(l *ledger, m map[place]bool) []place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m), func(a, b place) int {
		return strings.Compare(a.volume+"\x00"+a.where, b.volume+"\x00"+b.where)
	})
}
