package sanityv0

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// hidesGrants makes the plugin forget, for one publish, the other nodes that
// have the volume.
func hidesGrants(when func(r *reference, m publishReq) bool) fault {
	return forgets(func(r *reference, m publishReq) func() {
		v := r.volumes[m.GetVolumeId()]
		if v == nil || !when(r, m) {
			return func() {}
		}
		hidden := map[string]publishReq{}
		for node, grant := range v.grants {
			if node != m.GetNodeId() {
				hidden[node] = grant
				delete(v.grants, node)
			}
		}
		return func() { maps.Copy(v.grants, hidden) }
	})
}

func publishMutants() []mutant {
	n := 0
	return []mutant{
		{name: "the publish info changes", caught: "publish/repeat-gives-the-same-answer",
			fault: answers(func(_ *reference, m publishResp) { n++; m.PublishInfo["session"] = fmt.Sprint(n) })},
		{name: "a repeat ignores readonly", caught: "publish/other-readonly-already-exists",
			fault: asks(func(r *reference, m publishReq) {
				if v := r.volumes[m.GetVolumeId()]; v != nil && v.grants[m.GetNodeId()] != nil {
					m.Readonly = v.grants[m.GetNodeId()].GetReadonly()
				}
			})},
		{name: "incompatible is FAILED_PRECONDITION", caught: "publish/other-readonly-already-exists",
			fault: recodes[publishReq](codes.AlreadyExists, codes.FailedPrecondition, nil)},
		{name: "a repeat ignores the capability", caught: "publish/other-capability-already-exists",
			fault: asks(func(r *reference, m publishReq) {
				if v := r.volumes[m.GetVolumeId()]; v != nil && v.grants[m.GetNodeId()] != nil && wellFormed(m.GetVolumeCapability()) == nil {
					m.VolumeCapability = v.grants[m.GetNodeId()].GetVolumeCapability()
				}
			})},
		{name: "an unknown volume is a failed precondition", caught: "publish/unknown-volume-is-not-found",
			fault: recodes(codes.NotFound, codes.FailedPrecondition, func(m publishReq) bool { return m.GetVolumeId() == noVolume })},
		{name: "any node is known", caught: "publish/unknown-node-is-not-found",
			fault: asks(func(r *reference, m publishReq) { r.nodes[m.GetNodeId()] = true })},
		{name: "a published volume is refused before the node is looked up", caught: "publish/unknown-node-is-not-found",
			fault: refuses(codes.FailedPrecondition, func(r *reference, m publishReq) bool {
				v := r.volumes[m.GetVolumeId()]
				return v != nil && len(v.grants) > 0 && m.GetNodeId() == "sanity-no-such-node"
			})},
		{name: "a volume is published to two nodes", caught: "publish/second-node-is-refused-naming-the-first",
			fault: hidesGrants(func(_ *reference, m publishReq) bool { return !multi(m.GetVolumeCapability()) })},
		{name: "the second node takes the volume from the first", caught: "publish/second-node-is-refused-naming-the-first",
			fault: asks(func(r *reference, m publishReq) {
				if v := r.volumes[m.GetVolumeId()]; v != nil && !multi(m.GetVolumeCapability()) {
					maps.DeleteFunc(v.grants, func(node string, _ publishReq) bool { return node != m.GetNodeId() })
				}
			})},
		{name: "the first node is not named", caught: "publish/second-node-is-refused-naming-the-first",
			fault: refuses(codes.FailedPrecondition, func(r *reference, m publishReq) bool {
				v := r.volumes[m.GetVolumeId()]
				return v != nil && r.nodes[m.GetNodeId()] && v.grants[m.GetNodeId()] == nil && len(v.grants) > 0 && wellFormed(m.GetVolumeCapability()) == nil && !multi(m.GetVolumeCapability())
			})},
		{name: "the mode of the call decides", caught: "publish/mode-for-several-nodes-opens-no-single-node-volume",
			fault: both(
				hidesGrants(func(_ *reference, m publishReq) bool { return multi(m.GetVolumeCapability()) }),
				asks(func(r *reference, m publishReq) {
					if multi(m.GetVolumeCapability()) && !r.forSeveral(m.GetVolumeId()) {
						m.VolumeCapability.AccessMode.Mode = singleWriter
					}
				}))},
		{name: "a published volume is deleted", caught: "publish/published-volume-is-not-deleted",
			fault: asks(func(r *reference, m deleteReq) {
				if v := r.volumes[m.GetVolumeId()]; v != nil {
					clear(v.grants)
				}
			})},
		{name: "a refused deletion closes the volume", caught: "publish/published-volume-is-not-deleted",
			fault: forgets(func(r *reference, m deleteReq) func() {
				return func() {
					if v := r.volumes[m.GetVolumeId()]; v != nil {
						clear(v.grants)
					}
				}
			})},
	}
}

func unpublishMutants() []mutant {
	first := map[string]string{}
	published := func(r *reference, m unpublishReq) bool {
		v := r.volumes[m.GetVolumeId()]
		return v != nil && v.grants[m.GetNodeId()] != nil
	}
	return []mutant{
		{name: "not published is NOT_FOUND", caught: "unpublish/repeat-is-ok",
			fault: refuses(codes.NotFound, func(r *reference, m unpublishReq) bool {
				return r.volumes[m.GetVolumeId()] != nil && m.GetNodeId() != "" && !published(r, m)
			})},
		{name: "any node closes the volume", caught: "unpublish/not-published-there-is-ok",
			fault: asks(func(r *reference, m unpublishReq) {
				if r.nodes[m.GetNodeId()] && !r.forSeveral(m.GetVolumeId()) {
					m.NodeId = ""
				}
			})},
		{name: "an unknown volume is OK, as in csi.v1", caught: "unpublish/unknown-volume-is-not-found",
			fault: pretends[unpublishReq, unpublishResp](func(r *reference, m unpublishReq) bool { return m.GetVolumeId() == noVolume })},
		{name: "an unknown node is OK, as in csi.v1", caught: "unpublish/unknown-node-is-not-found",
			fault: pretends[unpublishReq, unpublishResp](func(r *reference, m unpublishReq) bool {
				return m.GetNodeId() == "sanity-no-such-node" && m.GetVolumeId() != ""
			})},
		{name: "nothing is closed", caught: "unpublish/closes-the-volume",
			fault: pretends[unpublishReq, unpublishResp](func(r *reference, m unpublishReq) bool { return published(r, m) })},
		{name: "without node_id nothing is closed", caught: "unpublish/without-node-closes-the-volume",
			fault: pretends[unpublishReq, unpublishResp](func(r *reference, m unpublishReq) bool {
				return r.volumes[m.GetVolumeId()] != nil && m.GetNodeId() == ""
			})},
		{name: "a volume stays with its first node for ever", caught: "unpublish/volume-moves-to-another-node",
			fault: both(
				refuses(codes.FailedPrecondition, func(_ *reference, m publishReq) bool {
					return first[m.GetVolumeId()] != "" && first[m.GetVolumeId()] != m.GetNodeId()
				}),
				after(func(r *reference, m publishReq, _ publishResp) {
					if !r.forSeveral(m.GetVolumeId()) {
						first[m.GetVolumeId()] = m.GetNodeId()
					}
				}))},
	}
}

func stageMutants() []mutant {
	deleted := map[string]bool{}
	remembers := after(func(_ *reference, m deleteReq, _ deleteResp) { deleted[m.GetVolumeId()] = true })
	// stagedAs changes a stage of what is staged there.
	stagedAs := func(edit func(m stageReq, have *csi.VolumeCapability)) fault {
		return asks(func(r *reference, m stageReq) {
			if have := r.staged[place{m.GetVolumeId(), m.GetStagingTargetPath()}]; have != nil && wellFormed(m.GetVolumeCapability()) == nil {
				edit(m, have)
			}
		})
	}
	return []mutant{
		{name: "an unknown volume is staged", caught: "stage/unknown-volume-is-not-found",
			fault: forgives[stageReq, stageResp](codes.NotFound)},
		{name: "a deleted volume is staged", caught: "stage/deleted-volume-is-not-staged",
			fault: both(remembers, pretends[stageReq, stageResp](func(r *reference, m stageReq) bool {
				return deleted[m.GetVolumeId()] && r.volumes[m.GetVolumeId()] == nil
			}))},
		{name: "a relative path is taken", caught: "stage/relative-path-is-refused",
			fault: asks(func(_ *reference, m stageReq) {
				if strings.HasSuffix(m.GetStagingTargetPath(), "sanity-relative") {
					m.StagingTargetPath = "/" + m.GetStagingTargetPath()
				}
			})},
		{name: "the mode is not looked at", caught: "stage/capability-beyond-the-volume-is-refused",
			fault: asks(func(r *reference, m stageReq) {
				if wellFormed(m.GetVolumeCapability()) == nil && !r.forSeveral(m.GetVolumeId()) {
					m.VolumeCapability.AccessMode.Mode = singleWriter
				}
			})},
		{name: "stages stack", caught: "stage/repeat-is-ok-and-stacks-nothing",
			fault: after(func(r *reference, m stageReq, _ stageResp) { r.mounts[m.GetStagingTargetPath()]++ })},
		{name: "a repeat already exists", caught: "stage/repeat-is-ok-and-stacks-nothing",
			fault: refuses(codes.AlreadyExists, func(r *reference, m stageReq) bool {
				return r.staged[place{m.GetVolumeId(), m.GetStagingTargetPath()}] != nil
			})},
		{name: "a repeat ignores the capability", caught: "stage/other-capability-already-exists",
			fault: stagedAs(func(m stageReq, have *csi.VolumeCapability) {
				if m.GetVolumeCapability().GetAccessMode().GetMode() == singleReader {
					m.VolumeCapability = have
				}
			})},
		{name: "a repeat ignores the access type", caught: "stage/other-access-type-is-refused",
			fault: stagedAs(func(m stageReq, have *csi.VolumeCapability) { m.VolumeCapability.AccessType = have.GetAccessType() })},
		{name: "unstage of one path takes all down", caught: "stage/second-path-is-independent-or-refused",
			fault: after(func(r *reference, m unstageReq, _ unstageResp) {
				for p := range r.staged {
					if p.volume == m.GetVolumeId() && strings.HasSuffix(m.GetStagingTargetPath(), "2") {
						delete(r.staged, p)
						delete(r.mounts, p.where)
					}
				}
			})},
		{name: "not staged is a failed precondition", caught: "stage/unstage-of-what-is-not-staged-is-ok",
			fault: refuses(codes.FailedPrecondition, func(r *reference, m unstageReq) bool {
				return r.volumes[m.GetVolumeId()] != nil && m.GetStagingTargetPath() != "" && r.staged[place{m.GetVolumeId(), m.GetStagingTargetPath()}] == nil
			})},
		{name: "unstage leaves the mount", caught: "stage/unstage-leaves-no-mount",
			fault: forgets(func(r *reference, m unstageReq) func() {
				lines := r.mounts[m.GetStagingTargetPath()]
				return func() { r.mounts[m.GetStagingTargetPath()] = lines }
			})},
	}
}

// hidesTargets makes the plugin forget, for one publish, the other targets of
// the volume.
func hidesTargets(when func(m nodePublishReq) bool) fault {
	return forgets(func(r *reference, m nodePublishReq) func() {
		hidden := map[string]*refTarget{}
		for path, t := range r.targets {
			if path != m.GetTargetPath() && t.request.GetVolumeId() == m.GetVolumeId() && when(m) {
				hidden[path] = t
				delete(r.targets, path)
			}
		}
		return func() { maps.Copy(r.targets, hidden) }
	})
}

// publishedAs changes a publish at a target where the volume is published.
func publishedAs(edit func(r *reference, m, have nodePublishReq)) fault {
	return asks(func(r *reference, m nodePublishReq) {
		if have := r.targets[m.GetTargetPath()]; have != nil && wellFormed(m.GetVolumeCapability()) == nil {
			edit(r, m, have.request)
		}
	})
}

// elsewhere reports whether the volume has another target already.
func (r *reference) elsewhere(m nodePublishReq) bool {
	for path, t := range r.targets {
		if path != m.GetTargetPath() && t.request.GetVolumeId() == m.GetVolumeId() && m.GetStagingTargetPath() != "" {
			return true
		}
	}
	return false
}

func nodePublishMutants() []mutant {
	return []mutant{
		{name: "a missing staging path is INVALID_ARGUMENT", caught: "node-publish/without-staging-path-is-a-failed-precondition",
			fault: recodes(codes.FailedPrecondition, codes.InvalidArgument, func(m nodePublishReq) bool { return m.GetStagingTargetPath() == "" })},
		{name: "a plain directory is bound", caught: "node-publish/not-staged-is-a-failed-precondition",
			fault: func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
				resp, err := next(req)
				if m, ok := req.(nodePublishReq); ok && m.GetStagingTargetPath() != "" && strings.Contains(status.Convert(err).Message(), "not staged") {
					return &csi.NodePublishVolumeResponse{}, nil
				}
				return resp, err
			}},
		{name: "a refused publish leaves a mount", caught: "node-publish/not-staged-is-a-failed-precondition",
			fault: asks(func(r *reference, m nodePublishReq) {
				if r.volumes[m.GetVolumeId()] != nil && wellFormed(m.GetVolumeCapability()) == nil && r.staged[place{m.GetVolumeId(), m.GetStagingTargetPath()}] == nil {
					r.mounts[m.GetTargetPath()]++
				}
			})},
		{name: "a relative path is taken", caught: "node-publish/relative-target-is-refused",
			fault: pretends[nodePublishReq, nodePublishResp](func(_ *reference, m nodePublishReq) bool {
				return strings.HasSuffix(m.GetTargetPath(), "sanity-relative")
			})},
		{name: "the target must exist", caught: "node-publish/missing-target-is-made",
			fault: refuses(codes.FailedPrecondition, func(r *reference, m nodePublishReq) bool {
				_, err := os.Stat(m.GetTargetPath())
				return err != nil && r.volumes[m.GetVolumeId()] != nil && strings.HasPrefix(m.GetTargetPath(), "/")
			})},
		{name: "a repeat already exists", caught: "node-publish/same-target-same-arguments-is-ok",
			fault: refuses(codes.AlreadyExists, func(r *reference, m nodePublishReq) bool {
				have := r.targets[m.GetTargetPath()]
				return have != nil && !r.forSeveral(m.GetVolumeId())
			})},
		{name: "publishes stack", caught: "node-publish/same-target-same-arguments-is-ok",
			fault: after(func(r *reference, m nodePublishReq, _ nodePublishResp) { r.mounts[m.GetTargetPath()]++ })},
		{name: "a repeat ignores readonly", caught: "node-publish/same-target-other-readonly-already-exists",
			fault: publishedAs(func(r *reference, m, have nodePublishReq) {
				if !r.forSeveral(m.GetVolumeId()) {
					m.Readonly = have.GetReadonly()
				}
			})},
		{name: "a repeat mounts again with the other readonly and then refuses", caught: "node-publish/same-target-other-readonly-already-exists",
			fault: publishedAs(func(r *reference, m, have nodePublishReq) {
				if m.GetReadonly() != have.GetReadonly() {
					r.mounts[m.GetTargetPath()]++
				}
			})},
		{name: "a repeat ignores the capability", caught: "node-publish/same-target-other-capability-already-exists",
			fault: publishedAs(func(_ *reference, m, have nodePublishReq) { m.VolumeCapability = have.GetVolumeCapability() })},
		{name: "one node has two targets", caught: "node-publish/other-target-same-arguments-is-refused",
			fault: hidesTargets(func(m nodePublishReq) bool { return !m.GetReadonly() && !multi(m.GetVolumeCapability()) })},
		{name: "a second readonly target is accepted", caught: "node-publish/other-target-other-arguments-is-refused",
			fault: hidesTargets(func(m nodePublishReq) bool { return m.GetReadonly() && !multi(m.GetVolumeCapability()) })},
		{name: "a second target already exists", caught: "node-publish/other-target-other-arguments-is-refused",
			fault: recodes(codes.FailedPrecondition, codes.AlreadyExists, func(m nodePublishReq) bool { return m.GetReadonly() })},
		{name: "repeats stack", caught: "node-publish/one-unpublish-undoes-repeated-publishes",
			fault: publishedAs(func(r *reference, m, have nodePublishReq) {
				if proto.Equal(m.GetVolumeCapability(), have.GetVolumeCapability()) && m.GetReadonly() == have.GetReadonly() {
					r.mounts[m.GetTargetPath()]++
				}
			})},
		{name: "nothing to unpublish is NOT_FOUND", caught: "node-publish/unpublish-repeats-and-finds-nothing-with-ok",
			fault: refuses(codes.NotFound, func(r *reference, m nodeUnpublishReq) bool {
				return r.volumes[m.GetVolumeId()] != nil && m.GetTargetPath() != "" && r.targets[m.GetTargetPath()] == nil
			})},
		{name: "unpublish of a missing path is an error", caught: "node-publish/unpublish-repeats-and-finds-nothing-with-ok",
			fault: refuses(codes.Internal, func(r *reference, m nodeUnpublishReq) bool {
				_, err := os.Stat(m.GetTargetPath())
				return err != nil && r.volumes[m.GetVolumeId()] != nil && m.GetTargetPath() != ""
			})},
		{name: "unpublish also unstages", caught: "node-publish/unpublish-leaves-the-volume-staged",
			fault: after(func(r *reference, m nodeUnpublishReq, _ nodeUnpubResp) {
				for p := range r.staged {
					if p.volume == m.GetVolumeId() {
						delete(r.staged, p)
						delete(r.mounts, p.where)
					}
				}
			})},
	}
}

func multiMutants() []mutant {
	return []mutant{
		{name: "a second node is never accepted", caught: "multi/second-node-is-accepted",
			fault: refuses(codes.FailedPrecondition, func(r *reference, m publishReq) bool {
				v := r.volumes[m.GetVolumeId()]
				return r.forSeveral(m.GetVolumeId()) && v.grants[m.GetNodeId()] == nil && len(v.grants) > 0
			})},
		{name: "unpublish ignores node_id", caught: "multi/unpublish-of-one-node-leaves-the-other",
			fault: asks(func(r *reference, m unpublishReq) {
				if r.forSeveral(m.GetVolumeId()) {
					m.NodeId = ""
				}
			})},
		{name: "one node of two does not count as in use", caught: "multi/volume-of-two-nodes-is-not-deleted",
			fault: asks(func(r *reference, m deleteReq) {
				if r.forSeveral(m.GetVolumeId()) {
					clear(r.volumes[m.GetVolumeId()].grants)
				}
			})},
		{name: "unpublish from all nodes closes one", caught: "multi/unpublish-without-node-closes-all",
			fault: asks(func(r *reference, m unpublishReq) {
				if v := r.volumes[m.GetVolumeId()]; v != nil && m.GetNodeId() == "" && len(v.grants) > 1 {
					m.NodeId = slices.Min(slices.Collect(maps.Keys(v.grants)))
				}
			})},
		{name: "a repeat already exists", caught: "multi/same-target-same-arguments-is-ok",
			fault: refuses(codes.AlreadyExists, func(r *reference, m nodePublishReq) bool {
				return r.forSeveral(m.GetVolumeId()) && r.targets[m.GetTargetPath()] != nil
			})},
		{name: "a repeat ignores the arguments", caught: "multi/same-target-other-arguments-already-exists",
			fault: publishedAs(func(r *reference, m, have nodePublishReq) {
				if r.forSeveral(m.GetVolumeId()) {
					m.Readonly = have.GetReadonly()
				}
			})},
		{name: "one target only", caught: "multi/other-target-same-arguments-is-ok",
			fault: refuses(codes.FailedPrecondition, func(r *reference, m nodePublishReq) bool { return r.forSeveral(m.GetVolumeId()) && r.elsewhere(m) })},
		{name: "all targets must have the same arguments", caught: "multi/other-target-other-arguments-is-ok",
			fault: refuses(codes.AlreadyExists, func(r *reference, m nodePublishReq) bool {
				return r.forSeveral(m.GetVolumeId()) && r.elsewhere(m) && m.GetReadonly()
			})},
		{name: "a second readonly target takes writes", caught: "multi/other-target-other-arguments-is-ok",
			fault: after(func(r *reference, m nodePublishReq, _ nodePublishResp) {
				if r.forSeveral(m.GetVolumeId()) && r.elsewhere(m) {
					r.targets[m.GetTargetPath()].readonly = false
				}
			})},
		{name: "the second target shows another volume", caught: "multi/two-targets-show-one-volume",
			fault: after(func(r *reference, m nodePublishReq, _ nodePublishResp) {
				if r.forSeveral(m.GetVolumeId()) && r.elsewhere(m) {
					t := r.targets[m.GetTargetPath()]
					r.data["other"] = []byte(strings.Repeat("other", 2000))
					shown := proto.Clone(t.request).(nodePublishReq)
					shown.VolumeId = "other"
					r.targets[m.GetTargetPath()] = &refTarget{request: shown}
				}
			})},
	}
}

func lifecycleMutants() []mutant {
	block := func(o *Options, _ *reference) { o.Block = true }
	return []mutant{
		{name: "a new volume holds old files", caught: "lifecycle/new-volume-is-empty",
			fault: answers(func(r *reference, m createResp) { r.data[m.GetVolume().GetId()] = []byte("old") })},
		{name: "a new block volume is formatted", caught: "lifecycle/new-volume-is-empty", options: block,
			fault: after(func(r *reference, m stageReq, _ stageResp) {
				r.data[m.GetVolumeId()] = append(make([]byte, 1024), "ext4"...)
			})},
		{name: "unpublish discards the data", caught: "lifecycle/data-survives-unpublish-and-publish",
			fault: after(func(r *reference, m nodeUnpublishReq, _ nodeUnpubResp) { delete(r.data, m.GetVolumeId()) })},
		{name: "each stage makes a filesystem", caught: "lifecycle/data-survives-unstage-and-stage",
			fault: after(func(r *reference, m stageReq, _ stageResp) { delete(r.data, m.GetVolumeId()) })},
		{name: "unpublish from the node discards the data", caught: "lifecycle/data-survives-a-new-controller-publish",
			fault: after(func(r *reference, m unpublishReq, _ unpublishResp) { delete(r.data, m.GetVolumeId()) })},
		{name: "readonly is ignored", caught: "lifecycle/readonly-publish-takes-no-write",
			fault: after(func(r *reference, m nodePublishReq, _ nodePublishResp) {
				if t := r.targets[m.GetTargetPath()]; t != nil {
					t.readonly = false
				}
			})},
		{name: "a readonly block volume takes writes", caught: "lifecycle/readonly-publish-takes-no-write",
			options: block,
			fault:   after(func(r *reference, m nodePublishReq, _ nodePublishResp) { r.targets[m.GetTargetPath()].readonly = false })},
		{name: "a restart forgets what is published", caught: "lifecycle/answers-are-the-same-after-a-pause",
			options: func(o *Options, r *reference) {
				o.Pause = func(context.Context, string) error {
					r.mu.Lock()
					defer r.mu.Unlock()
					clear(r.targets)
					return nil
				}
			},
			fault: forgets(func(r *reference, m nodePublishReq) func() {
				lines := r.mounts[m.GetTargetPath()]
				if lines == 0 || r.targets[m.GetTargetPath()] != nil {
					return func() {}
				}
				return func() { r.mounts[m.GetTargetPath()] = lines + 1 }
			})},
	}
}

// slow makes calls that are sent at once meet each other.
func slow(r *reference) { r.latency = 20 * time.Millisecond }

func concurrencyMutants() []mutant {
	return []mutant{
		{name: "a second creation meanwhile makes a second volume", caught: "concurrency/identical-creates-make-one-volume",
			setup: slow,
			fault: func(_ context.Context, _ *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
				resp, err := next(req)
				if m, ok := req.(createReq); ok && status.Code(err) == codes.Aborted {
					m.Name += "-2"
					return next(m)
				}
				return resp, err
			}},
		{name: "busy is ALREADY_EXISTS", caught: "concurrency/identical-creates-make-one-volume",
			setup: slow, fault: recodes[createReq](codes.Aborted, codes.AlreadyExists, nil)},
		{name: "busy is an internal error", caught: "concurrency/creates-and-deletes-end-consistent",
			setup: slow, fault: recodes[deleteReq](codes.Aborted, codes.Internal, nil)},
		{name: "busy is UNAVAILABLE", caught: "concurrency/identical-publishes-agree",
			setup: slow, fault: recodes[publishReq](codes.Aborted, codes.Unavailable, nil)},
		{name: "busy is FAILED_PRECONDITION", caught: "concurrency/publishes-and-unpublishes-end-consistent",
			setup: slow, fault: recodes[unpublishReq](codes.Aborted, codes.FailedPrecondition, nil)},
		{name: "two nodes win", caught: "concurrency/two-nodes-race-and-one-wins",
			fault: hidesGrants(func(_ *reference, m publishReq) bool { return !multi(m.GetVolumeCapability()) })},
		{name: "busy is an internal error", caught: "concurrency/identical-stages-stack-nothing",
			setup: slow, fault: recodes[stageReq](codes.Aborted, codes.Internal, nil)},
		{name: "stages at once stack", caught: "concurrency/identical-stages-stack-nothing",
			setup: slow,
			fault: func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
				resp, err := next(req)
				if m, ok := req.(stageReq); ok && status.Code(err) == codes.Aborted {
					// The first has ended when the second has the lock.
					for status.Code(err) == codes.Aborted {
						resp, err = next(req)
					}
					r.mu.Lock()
					r.mounts[m.GetStagingTargetPath()]++
					r.mu.Unlock()
				}
				return resp, err
			}},
		{name: "busy is an internal error", caught: "concurrency/identical-node-publishes-stack-nothing",
			setup: slow, fault: recodes[nodePublishReq](codes.Aborted, codes.Internal, nil)},
		{name: "busy is NOT_FOUND", caught: "concurrency/identical-undoings-are-ok",
			setup: slow, fault: recodes[nodeUnpublishReq](codes.Aborted, codes.NotFound, nil)},
	}
}

// cutAfter is a deadline that counts as short for the mutants below, and is met
// by the reference even on a machine under load.
const cutAfter = 5 * time.Second

// hurries makes sure that calls which count as cut off reach the mutant.
func hurries(o *Options, _ *reference) {
	o.Deadlines = []time.Duration{time.Millisecond, cutAfter - time.Second}
}

// cutOff does something after a request whose caller does not wait for the answer.
func cutOff[Req proto.Message](do func(r *reference, req Req)) fault {
	return func(ctx context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		resp, err := next(req)
		d, ok := ctx.Deadline()
		if m, is := req.(Req); is && ok && time.Until(d) < cutAfter {
			r.mu.Lock()
			do(r, m)
			r.mu.Unlock()
		}
		return resp, err
	}
}

func deadlineMutants() []mutant {
	return []mutant{
		{name: "a creation that is cut off leaves a second volume", caught: "deadline/create-and-delete-are-repeatable", options: hurries,
			fault: cutOff(func(r *reference, m createReq) {
				id := refID(m.GetName() + "half")
				r.volumes[id] = &refVolume{Volume: &csi.Volume{Id: id}, request: m}
			})},
		{name: "a publish that is cut off is half made", caught: "deadline/publish-and-unpublish-are-repeatable", options: hurries,
			fault: cutOff(func(r *reference, m publishReq) {
				half := proto.Clone(m).(publishReq)
				half.Readonly = true
				r.volumes[m.GetVolumeId()].grants[m.GetNodeId()] = half
			})},
		{name: "a publish that is cut off mounts twice", caught: "deadline/node-calls-are-repeatable", options: hurries,
			fault: cutOff(func(r *reference, m nodePublishReq) { r.mounts[m.GetTargetPath()]++ })},
	}
}

func deleteMutants() []mutant {
	deleted := map[string]bool{}
	remembers := after(func(_ *reference, m deleteReq, _ deleteResp) { deleted[m.GetVolumeId()] = true })
	return []mutant{
		{name: "a deleted volume is NOT_FOUND", caught: "delete/repeat-is-ok",
			fault: both(refuses(codes.NotFound, func(r *reference, m deleteReq) bool {
				return deleted[m.GetVolumeId()] && r.volumes[m.GetVolumeId()] == nil
			}), remembers)},
		{name: "a deleted volume still validates", caught: "delete/deleted-volume-is-unknown",
			fault: both(remembers, pretends[validateReq, validateResp](func(r *reference, m validateReq) bool {
				return deleted[m.GetVolumeId()] && r.volumes[m.GetVolumeId()] == nil
			}))},
		{name: "a deleted volume is listed", caught: "delete/deleted-volume-is-not-listed",
			fault: func() fault {
				var ghosts []*csi.Volume
				return both(
					forgets(func(r *reference, m deleteReq) func() {
						if r.has(m.GetVolumeId(), "limited") {
							ghosts = append(ghosts, r.volumes[m.GetVolumeId()].Volume)
						}
						return func() {}
					}),
					answers(func(_ *reference, m listResp) {
						for _, g := range ghosts {
							m.Entries = append(m.Entries, &csi.ListVolumesResponse_Entry{Volume: g})
						}
					}))
			}()},
		{name: "the name of a deleted volume stays taken", caught: "delete/name-is-free-again",
			fault: both(remembers, refuses(codes.AlreadyExists, func(r *reference, m createReq) bool {
				return deleted[refID(m.GetName())] && r.volumes[refID(m.GetName())] == nil && strings.HasSuffix(m.GetName(), "-renewed")
			}))},
		{name: "a deleted volume is only hidden", caught: "delete/name-is-free-again",
			fault: func() fault {
				hidden := map[string]*refVolume{}
				return both(
					forgets(func(r *reference, m deleteReq) func() {
						if v := r.volumes[m.GetVolumeId()]; v != nil {
							hidden[m.GetVolumeId()] = v
						}
						return func() {}
					}),
					asks(func(r *reference, m createReq) {
						if v := hidden[refID(m.GetName())]; v != nil && r.volumes[v.GetId()] == nil {
							r.volumes[v.GetId()] = v
						}
					}))
			}()},
		{name: "a new volume has the data of the old one", caught: "delete/new-volume-of-an-old-name-is-empty",
			fault: forgets(func(r *reference, m deleteReq) func() {
				data := r.data[m.GetVolumeId()]
				return func() { r.data[m.GetVolumeId()] = data }
			})},
	}
}

func wireMutants() []mutant {
	// restated gives the errors of a plugin another form.
	restated := func(form func(*status.Status) error) fault {
		return func(_ context.Context, _ *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
			resp, err := next(req)
			if err != nil {
				return nil, form(status.Convert(err))
			}
			return resp, nil
		}
	}
	return []mutant{
		{name: "errors have no message", caught: "wire/every-error-has-a-message",
			fault: restated(func(s *status.Status) error { return status.Error(s.Code(), " ") })},
		{name: "errors have details", caught: "wire/no-error-has-details",
			fault: restated(func(s *status.Status) error {
				p := s.Proto()
				if detail, err := anypb.New(&emptypb.Empty{}); err == nil {
					p.Details = append(p.Details, detail)
				}
				return status.ErrorProto(p)
			})},
		{name: "capabilities are in the field of csi.v1", caught: "wire/answers-have-no-unknown-fields",
			fault: answers(func(_ *reference, m *csi.GetPluginCapabilitiesResponse) {
				// Field 1, a message of two bytes' length.
				m.ProtoReflect().SetUnknown([]byte{0x0a, 0x02, 0x0a, 0x00})
			})},
		{name: "ids of 129 bytes", caught: "wire/strings-are-at-most-128-bytes",
			setup: func(r *reference) { r.idTail = strings.Repeat("x", 129-len(refID(""))) }},
		{name: "publish info of more than 4 KiB", caught: "wire/maps-are-at-most-4-kib",
			fault: answers(func(_ *reference, m publishResp) { m.PublishInfo["k"] = strings.Repeat("v", 4096) })},
		{name: "attributes of more than 4 KiB", caught: "wire/maps-are-at-most-4-kib",
			fault: answers(func(_ *reference, m createResp) { m.Volume.Attributes["k"] = strings.Repeat("v", 4096) })},
		{name: "a message quotes the request", caught: "wire/no-answer-holds-a-secret",
			fault: func(_ context.Context, _ *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
				resp, err := next(req)
				if m, ok := req.(stageReq); ok && err != nil {
					return nil, status.Errorf(status.Code(err), "%s: %v", status.Convert(err).Message(), m)
				}
				return resp, err
			}},
		{name: "the publish info holds the password", caught: "wire/no-answer-holds-a-secret",
			fault: after(func(_ *reference, m publishReq, a publishResp) {
				a.PublishInfo["password"] = m.GetControllerPublishSecrets()["password"]
			})},
	}
}

func cleanupMutants() []mutant {
	return []mutant{
		{name: "the last volume cannot be deleted", caught: "cleanup/everything-can-be-undone",
			fault: refuses(codes.Internal, func(r *reference, m deleteReq) bool { return r.has(m.GetVolumeId(), "base") })},
		{name: "unstage leaves the mount", caught: "cleanup/no-mount-is-left",
			fault: forgets(func(r *reference, m unstageReq) func() {
				lines := r.mounts[m.GetStagingTargetPath()]
				return func() { r.mounts[m.GetStagingTargetPath()] = lines }
			})},
		{name: "a volume is made on the side", caught: "cleanup/no-volume-is-left",
			fault: answers(func(r *reference, m createResp) {
				id := m.GetVolume().GetId() + "-side"
				r.volumes[id] = &refVolume{Volume: &csi.Volume{Id: id}, request: &csi.CreateVolumeRequest{}}
			})},
		{name: "a volume of another is deleted", caught: "cleanup/no-volume-is-left",
			setup: func(r *reference) {
				r.volumes["other"] = &refVolume{Volume: &csi.Volume{Id: "other"}, request: &csi.CreateVolumeRequest{}}
			},
			fault: after(func(r *reference, _ deleteReq, _ deleteResp) { delete(r.volumes, "other") })},
	}
}
