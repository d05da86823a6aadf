package sanityv0

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

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
