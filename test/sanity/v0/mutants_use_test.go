package sanityv0

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
