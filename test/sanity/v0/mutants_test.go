package sanityv0

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

type (
	createReq        = *csi.CreateVolumeRequest
	createResp       = *csi.CreateVolumeResponse
	deleteReq        = *csi.DeleteVolumeRequest
	deleteResp       = *csi.DeleteVolumeResponse
	publishReq       = *csi.ControllerPublishVolumeRequest
	publishResp      = *csi.ControllerPublishVolumeResponse
	unpublishReq     = *csi.ControllerUnpublishVolumeRequest
	unpublishResp    = *csi.ControllerUnpublishVolumeResponse
	validateReq      = *csi.ValidateVolumeCapabilitiesRequest
	validateResp     = *csi.ValidateVolumeCapabilitiesResponse
	listReq          = *csi.ListVolumesRequest
	listResp         = *csi.ListVolumesResponse
	capacityReq      = *csi.GetCapacityRequest
	capacityResp     = *csi.GetCapacityResponse
	stageReq         = *csi.NodeStageVolumeRequest
	stageResp        = *csi.NodeStageVolumeResponse
	unstageReq       = *csi.NodeUnstageVolumeRequest
	unstageResp      = *csi.NodeUnstageVolumeResponse
	nodePublishReq   = *csi.NodePublishVolumeRequest
	nodePublishResp  = *csi.NodePublishVolumeResponse
	nodeUnpublishReq = *csi.NodeUnpublishVolumeRequest
	nodeUnpubResp    = *csi.NodeUnpublishVolumeResponse
)

// mutants lists every fault that the suite is held to see.
func mutants() []mutant {
	return slices.Concat(
		identityMutants(), requiredMutants(), createMutants(), sizeMutants(), nameMutants(), validateMutants(), listMutants(), capacityMutants(),
		publishMutants(), unpublishMutants(), stageMutants(), nodePublishMutants(), multiMutants(), lifecycleMutants(),
		concurrencyMutants(), deadlineMutants(), deleteMutants(), wireMutants(), cleanupMutants(),
	)
}

func identityMutants() []mutant {
	named := func(name string) fault {
		return answers(func(_ *reference, m *csi.GetPluginInfoResponse) { m.Name = name })
	}
	n := 0
	return []mutant{
		{name: "NodeGetId is not served", caught: nameServes,
			fault: refuses(codes.Unimplemented, func(*reference, *csi.NodeGetIdRequest) bool { return true })},
		{name: "GetCapacity is not served", caught: "identity/every-rpc-is-served",
			fault: refuses(codes.Unimplemented, func(*reference, capacityReq) bool { return true })},
		{name: "the controller has another name", caught: "identity/both-endpoints-are-one-plugin", controllerOnly: true, fault: named("org.example.other")},
		{name: "name without a dot", caught: "identity/name-is-a-short-reverse-domain", fault: named("reference")},
		{name: "name of 64 characters", caught: "identity/name-is-a-short-reverse-domain", fault: named("org.example." + strings.Repeat("x", 52))},
		{name: "name ends with a dash", caught: "identity/name-is-a-short-reverse-domain", fault: named("org.example.reference-")},
		{name: "name with a slash", caught: "identity/name-is-a-short-reverse-domain", fault: named("org.example/reference")},
		{name: "no vendor version", caught: "identity/vendor-version-is-set",
			fault: answers(func(_ *reference, m *csi.GetPluginInfoResponse) { m.VendorVersion = "" })},
		{name: "vendor version changes", caught: "identity/info-is-the-same-each-time",
			fault: answers(func(_ *reference, m *csi.GetPluginInfoResponse) { n++; m.VendorVersion = fmt.Sprint(n) })},
		{name: "a plugin capability of csi.v1", caught: "identity/plugin-capabilities-are-those-of-v0",
			fault: answers(func(_ *reference, m *csi.GetPluginCapabilitiesResponse) {
				m.Capabilities = append(m.Capabilities, pluginCapability(2))
			})},
		{name: "no CONTROLLER_SERVICE", caught: "identity/plugin-capabilities-are-those-of-v0",
			fault: answers(func(_ *reference, m *csi.GetPluginCapabilitiesResponse) { m.Capabilities = nil })},
		{name: "probe fails", caught: "identity/probe-of-a-healthy-plugin-is-ok",
			fault: refuses(codes.FailedPrecondition, func(*reference, *csi.ProbeRequest) bool { return true })},
		{name: "a controller capability of csi.v1", caught: "identity/controller-capabilities-are-those-of-v0",
			fault: answers(func(_ *reference, m *csi.ControllerGetCapabilitiesResponse) {
				m.Capabilities = append(m.Capabilities, controllerCapability(5))
			})},
		{name: "a node capability of csi.v1", caught: "identity/node-capabilities-are-those-of-v0",
			fault: answers(func(_ *reference, m *csi.NodeGetCapabilitiesResponse) {
				m.Capabilities = append(m.Capabilities, nodeCapability(2))
			})},
		{name: "LIST_VOLUMES is not offered", caught: "identity/every-capability-of-v0-is-offered",
			fault: answers(func(_ *reference, m *csi.ControllerGetCapabilitiesResponse) {
				m.Capabilities = slices.DeleteFunc(m.Capabilities, func(c *csi.ControllerServiceCapability) bool {
					return c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_LIST_VOLUMES
				})
			})},
		{name: "no node id", caught: "identity/node-id-is-set-and-stable",
			fault: answers(func(_ *reference, m *csi.NodeGetIdResponse) { m.NodeId = "" })},
	}
}

// takenAs gives a capability of that mode, or without any, a good mode.
func takenAs(mode csi.VolumeCapability_AccessMode_Mode) func(*csi.VolumeCapability) {
	return func(c *csi.VolumeCapability) {
		if c != nil && c.GetAccessMode().GetMode() == mode {
			c.AccessMode = &csi.VolumeCapability_AccessMode{Mode: singleWriter}
		}
	}
}

func requiredMutants() []mutant {
	return []mutant{
		{name: "access mode UNKNOWN is taken for a writer", caught: "required/create-volume-refuses-each-missing-field",
			fault: asks(func(_ *reference, m createReq) {
				for _, c := range m.GetVolumeCapabilities() {
					takenAs(0)(c)
				}
			})},
		{name: "access mode 6 of csi.v1 is taken for a writer", caught: "required/create-volume-refuses-each-missing-field",
			fault: asks(func(_ *reference, m createReq) {
				for _, c := range m.GetVolumeCapabilities() {
					takenAs(6)(c)
				}
			})},
		{name: "a missing access type is a mount", caught: "required/create-volume-refuses-each-missing-field",
			fault: asks(func(_ *reference, m createReq) {
				for _, c := range m.GetVolumeCapabilities() {
					if c.GetAccessType() == nil {
						c.AccessType = accessCapability(false, "", singleWriter).GetAccessType()
					}
				}
			})},
		{name: "no id is an unknown id", caught: "required/delete-volume-refuses-a-missing-id",
			fault: forgives[deleteReq, deleteResp](codes.InvalidArgument)},
		{name: "the volume is looked up before the request is checked", caught: "required/controller-publish-refuses-each-missing-field",
			fault: refuses(codes.NotFound, func(r *reference, m publishReq) bool { return r.volumes[m.GetVolumeId()] == nil })},
		{name: "no id is an unknown id", caught: "required/controller-unpublish-refuses-a-missing-id",
			fault: recodes[unpublishReq](codes.InvalidArgument, codes.NotFound, nil)},
		{name: "no capabilities are all supported", caught: "required/validate-refuses-each-missing-field",
			fault: pretends[validateReq, validateResp](func(_ *reference, m validateReq) bool { return len(m.GetVolumeCapabilities()) == 0 })},
		{name: "broken capabilities are ignored", caught: "required/get-capacity-refuses-a-broken-capability",
			fault: asks(func(_ *reference, m capacityReq) {
				if allWellFormed(m.GetVolumeCapabilities()) != nil {
					m.VolumeCapabilities = nil
				}
			})},
		{name: "a missing capability is a failed precondition", caught: "required/stage-refuses-each-missing-field",
			fault: recodes(codes.InvalidArgument, codes.FailedPrecondition, func(m stageReq) bool { return m.GetVolumeCapability() == nil })},
		{name: "no path is nothing to do", caught: "required/unstage-refuses-each-missing-field",
			fault: forgives[unstageReq, unstageResp](codes.InvalidArgument)},
		{name: "access mode 7 of csi.v1 is taken for a writer", caught: "required/node-publish-refuses-each-missing-field",
			fault: asks(func(_ *reference, m nodePublishReq) { takenAs(7)(m.GetVolumeCapability()) })},
		{name: "no target is nothing to do", caught: "required/node-unpublish-refuses-each-missing-field",
			fault: pretends[nodeUnpublishReq, nodeUnpubResp](func(_ *reference, m nodeUnpublishReq) bool { return m.GetTargetPath() == "" })},
	}
}

// onRepeat changes a CreateVolume of a name that exists.
func onRepeat(edit func(m createReq, v *refVolume)) fault {
	return asks(func(r *reference, m createReq) {
		if v := r.volumes[refID(m.GetName())]; v != nil && len(m.GetVolumeCapabilities()) > 0 {
			edit(m, v)
		}
	})
}

func createMutants() []mutant {
	n := 0
	return []mutant{
		{name: "the volume is smaller than required", caught: "create/answer-describes-the-volume",
			fault: answers(func(_ *reference, m createResp) { m.Volume.CapacityBytes /= 2 })},
		{name: "all volumes have one id", caught: "create/answer-describes-the-volume",
			fault: answers(func(_ *reference, m createResp) { m.Volume.Id = "ref/one" })},
		{name: "a repeat makes a second volume", caught: "create/repeat-gives-the-same-answer",
			fault: onRepeat(func(m createReq, _ *refVolume) { n++; m.Name = fmt.Sprint(m.GetName(), n) })},
		{name: "a repeat forgets the attributes", caught: "create/repeat-gives-the-same-answer",
			fault: func() fault {
				seen := map[string]bool{}
				return answers(func(_ *reference, m createResp) {
					if seen[m.GetVolume().GetId()] {
						m.Volume.Attributes = nil
					}
					seen[m.GetVolume().GetId()] = true
				})
			}()},
		{name: "a repeat must have the same range", caught: "create/repeat-with-a-size-in-range-is-compatible",
			fault: refuses(codes.AlreadyExists, func(r *reference, m createReq) bool {
				v := r.volumes[refID(m.GetName())]
				return v != nil && allWellFormed(m.GetVolumeCapabilities()) == nil && len(m.GetVolumeCapabilities()) > 0 && !proto.Equal(v.request.GetCapacityRange(), m.GetCapacityRange())
			})},
		{name: "a repeat is never too small", caught: "create/repeat-with-a-larger-size-already-exists",
			fault: onRepeat(func(m createReq, v *refVolume) {
				if m.GetCapacityRange().GetRequiredBytes() > v.GetCapacityBytes() {
					m.CapacityRange.RequiredBytes = v.GetCapacityBytes()
				}
			})},
		{name: "a repeat ignores the limit", caught: "create/repeat-with-a-lower-limit-already-exists",
			fault: onRepeat(func(m createReq, _ *refVolume) {
				if m.GetCapacityRange().GetLimitBytes() > 0 {
					m.CapacityRange.LimitBytes = 0
				}
			})},
		{name: "too large a size of an existing volume is INVALID_ARGUMENT", caught: "create/repeat-with-a-larger-size-already-exists",
			fault: recodes[createReq](codes.AlreadyExists, codes.InvalidArgument, nil)},
		{name: "a repeat ignores the parameters", caught: "create/repeat-with-other-parameters-already-exists",
			fault: onRepeat(func(m createReq, v *refVolume) {
				if _, err := ownParameters(m.GetParameters()); err == nil {
					m.Parameters = v.request.GetParameters()
				}
			})},
		{name: "a repeat ignores the access type", caught: "create/repeat-with-the-other-access-type-is-refused",
			fault: onRepeat(func(m createReq, v *refVolume) {
				if allWellFormed(m.GetVolumeCapabilities()) == nil && m.GetVolumeCapabilities()[0].GetBlock() != nil {
					m.VolumeCapabilities = v.request.GetVolumeCapabilities()
				}
			})},
		{name: "a repeat ignores the access mode", caught: "create/repeat-for-several-nodes-already-exists",
			fault: onRepeat(func(m createReq, v *refVolume) {
				if allWellFormed(m.GetVolumeCapabilities()) == nil && multi(m.GetVolumeCapabilities()[0]) {
					m.VolumeCapabilities = v.request.GetVolumeCapabilities()
				}
			})},
		{name: "a refused repeat grows the volume", caught: "create/refused-repeat-leaves-the-volume",
			fault: onRepeat(func(m createReq, v *refVolume) {
				if want := m.GetCapacityRange().GetRequiredBytes(); want > v.GetCapacityBytes() && want < refMax {
					v.CapacityBytes = want - 1
				}
			})},
		{name: "unknown parameters are ignored", caught: "create/unknown-parameter-is-refused",
			fault: asks(func(_ *reference, m createReq) { delete(m.Parameters, "sanityUnknownKey") })},
		{name: "the keys of the old provisioner are unknown", caught: "create/keys-of-the-orchestrator-are-accepted",
			fault: refuses(codes.InvalidArgument, func(_ *reference, m createReq) bool { return m.GetParameters()["csiProvisionerSecretName"] != "" })},
		{name: "the keys of the new provisioner make another volume", caught: "create/keys-of-the-orchestrator-are-accepted",
			fault: refuses(codes.AlreadyExists, func(_ *reference, m createReq) bool { return m.GetParameters()["csi.storage.k8s.io/pv/name"] != "" })},
		{name: "any filesystem is supported", caught: "create/unsupported-capability-is-refused",
			fault: asks(func(_ *reference, m createReq) {
				for _, c := range m.GetVolumeCapabilities() {
					if c.GetMount().GetFsType() == "no-such-fs" {
						c.GetMount().FsType = ""
					}
				}
			})},
		{name: "only the first capability is looked at", caught: "create/unsupported-among-supported-is-refused",
			fault: asks(func(_ *reference, m createReq) {
				if len(m.GetVolumeCapabilities()) > 1 {
					m.VolumeCapabilities = m.VolumeCapabilities[:1]
				}
			})},
		{name: "an unsupported filesystem is UNIMPLEMENTED", caught: "create/unsupported-capability-is-refused",
			fault: recodes(codes.InvalidArgument, codes.Unimplemented, func(m createReq) bool { return strings.HasSuffix(m.GetName(), "-unsupported") })},
		{name: "a volume for block and mount is made for one of them", caught: "create/both-access-types-are-honoured-or-refused",
			fault: asks(func(_ *reference, m createReq) {
				if strings.HasSuffix(m.GetName(), "-mixed") {
					m.VolumeCapabilities = m.VolumeCapabilities[:1]
				}
			})},
	}
}

func sizeMutants() []mutant {
	return []mutant{
		{name: "a negative size is none", caught: "size/negative-is-refused",
			fault: asks(func(_ *reference, m createReq) {
				if m.GetCapacityRange().GetRequiredBytes() < 0 {
					m.CapacityRange.RequiredBytes = 0
				}
			})},
		{name: "a limit below the required size is ignored", caught: "size/limit-below-required-is-refused",
			fault: asks(func(_ *reference, m createReq) {
				if r := m.GetCapacityRange(); r.GetLimitBytes() > 0 && r.GetLimitBytes() < r.GetRequiredBytes() {
					r.LimitBytes = 0
				}
			})},
		{name: "an impossible size is RESOURCE_EXHAUSTED", caught: "size/impossible-is-out-of-range",
			fault: recodes[createReq](codes.OutOfRange, codes.ResourceExhausted, nil)},
		{name: "rounding up overflows", caught: "size/impossible-is-out-of-range",
			fault: asks(func(_ *reference, m createReq) {
				if m.GetCapacityRange().GetRequiredBytes() == math.MaxInt64 {
					m.CapacityRange.RequiredBytes = 0
				}
			})},
		{name: "an odd size is rounded down", caught: "size/odd-size-is-rounded-up",
			fault: answers(func(_ *reference, m createResp) { m.Volume.CapacityBytes -= refBlock })},
		{name: "the limit is ignored", caught: "size/exact-size-is-met-or-out-of-range",
			fault: asks(func(_ *reference, m createReq) {
				if r := m.GetCapacityRange(); r.GetLimitBytes() > 0 && r.GetLimitBytes() == r.GetRequiredBytes() {
					r.LimitBytes = 0
				}
			})},
		{name: "a limit alone is ignored", caught: "size/limit-alone-is-kept",
			fault: asks(func(_ *reference, m createReq) {
				if r := m.GetCapacityRange(); r != nil && r.GetRequiredBytes() == 0 {
					m.CapacityRange = nil
				}
			})},
		{name: "a range is required", caught: "size/no-range-gives-a-default",
			fault: refuses(codes.InvalidArgument, func(_ *reference, m createReq) bool { return m.GetCapacityRange() == nil })},
		{name: "the volume is made before its size is looked at", caught: "size/refused-size-leaves-nothing",
			fault: asks(func(r *reference, m createReq) {
				if m.GetCapacityRange().GetRequiredBytes() == math.MaxInt64 {
					id := refID(m.GetName())
					r.volumes[id] = &refVolume{Volume: &csi.Volume{Id: id}, request: m}
				}
			})},
	}
}

func nameMutants() []mutant {
	odd := func(id string) bool { return strings.ContainsAny(id, "@%,") }
	return []mutant{
		{name: "names are cut at 127 bytes", caught: "names/long-names-that-differ-at-the-end-give-two-ids",
			fault: asks(func(_ *reference, m createReq) { m.Name = m.Name[:min(len(m.Name), 127)] })},
		{name: "names of 128 bytes are too long", caught: "names/long-names-that-differ-at-the-end-give-two-ids",
			fault: refuses(codes.InvalidArgument, func(_ *reference, m createReq) bool { return len(m.GetName()) > 127 })},
		{name: "names are lowered", caught: "names/names-that-differ-in-case-give-two-ids",
			fault: asks(func(_ *reference, m createReq) { m.Name = strings.ToLower(m.Name) })},
		{name: "odd characters are dropped", caught: "names/odd-names-are-accepted-or-refused",
			fault: asks(func(_ *reference, m createReq) {
				m.Name = strings.Map(func(r rune) rune {
					if strings.ContainsRune("/@ \n\x00", r) {
						return -1
					}
					return r
				}, m.Name)
			})},
		{name: "an odd name is an internal error", caught: "names/odd-names-are-accepted-or-refused",
			fault: refuses(codes.Internal, func(_ *reference, m createReq) bool { return strings.Contains(m.GetName(), "@") })},
		{name: "an id that does not parse is INVALID_ARGUMENT", caught: "names/made-up-ids-are-unknown-to-the-controller",
			fault: recodes(codes.NotFound, codes.InvalidArgument, func(m validateReq) bool { return odd(m.GetVolumeId()) })},
		{name: "an id is cut at a space", caught: "names/made-up-ids-are-unknown-to-the-controller",
			fault: asks(func(_ *reference, m publishReq) { m.VolumeId, _, _ = strings.Cut(m.GetVolumeId(), " ") })},
		{name: "an id that does not parse is INVALID_ARGUMENT", caught: "names/made-up-ids-are-deleted-with-ok",
			fault: refuses(codes.InvalidArgument, func(_ *reference, m deleteReq) bool { return odd(m.GetVolumeId()) })},
		{name: "the node trusts the publish info and not the id", caught: "names/made-up-ids-are-unknown-to-the-node",
			fault: func() fault {
				last := ""
				return both(
					after(func(_ *reference, m publishReq, _ publishResp) { last = m.GetVolumeId() }),
					asks(func(r *reference, m stageReq) {
						if r.volumes[m.GetVolumeId()] == nil && odd(m.GetVolumeId()) && m.GetPublishInfo() != nil {
							m.VolumeId = last
						}
					}))
			}()},
		{name: "an unknown volume cannot be unstaged", caught: "names/made-up-ids-are-unstaged-and-unpublished-with-ok",
			fault: refuses(codes.NotFound, func(r *reference, m unstageReq) bool {
				return m.GetVolumeId() != "" && m.GetStagingTargetPath() != "" && r.volumes[m.GetVolumeId()] == nil
			})},
		{name: "a node id that does not parse is INVALID_ARGUMENT", caught: "names/made-up-nodes-are-unknown",
			fault: recodes(codes.NotFound, codes.InvalidArgument, func(m publishReq) bool { return m.GetNodeId() == "%" })},
		{name: "a deletion cleans the id's path", caught: "names/made-up-ids-touch-no-volume",
			fault: asks(func(_ *reference, m deleteReq) {
				if m.GetVolumeId() != "" {
					m.VolumeId = strings.TrimPrefix(filepath.Clean("/"+m.GetVolumeId()), "/")
				}
			})},
	}
}

func validateMutants() []mutant {
	return []mutant{
		{name: "nothing is supported", caught: "validate/capabilities-of-creation-are-supported",
			fault: answers(func(_ *reference, m validateResp) { m.Supported, m.Message = false, "no" })},
		{name: "no message", caught: "validate/unsupported-has-a-message",
			fault: answers(func(_ *reference, m validateResp) { m.Message = "" })},
		{name: "unsupported is an error", caught: "validate/unsupported-has-a-message",
			fault: refuses(codes.InvalidArgument, func(_ *reference, m validateReq) bool {
				return slices.ContainsFunc(m.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return c.GetMount().GetFsType() == "no-such-fs" })
			})},
		{name: "one supported is enough", caught: "validate/one-unsupported-of-several-is-unsupported",
			fault: asks(func(_ *reference, m validateReq) {
				if len(m.GetVolumeCapabilities()) > 1 && allWellFormed(m.GetVolumeCapabilities()) == nil {
					m.VolumeCapabilities = m.VolumeCapabilities[:1]
				}
			})},
		{name: "an unknown volume supports nothing", caught: "validate/unknown-volume-is-not-found",
			fault: forgives[validateReq, validateResp](codes.NotFound)},
	}
}

func listMutants() []mutant {
	return []mutant{
		{name: "no attributes", caught: "list/all-volumes-with-their-attributes",
			fault: answers(func(_ *reference, m listResp) {
				for _, e := range m.GetEntries() {
					e.Volume.Attributes = nil
				}
			})},
		{name: "max_entries is ignored", caught: "list/never-more-than-max-entries",
			fault: asks(func(_ *reference, m listReq) { m.MaxEntries = min(m.MaxEntries, 0) })},
		{name: "one entry more than max_entries", caught: "list/never-more-than-max-entries",
			fault: asks(func(_ *reference, m listReq) {
				if m.MaxEntries > 0 {
					m.MaxEntries++
				}
			})},
		{name: "the last of each page is lost", caught: "list/pages-hold-each-volume-exactly-once",
			fault: answers(func(_ *reference, m listResp) {
				if n := len(m.GetEntries()); n > 1 && m.GetNextToken() != "" {
					m.Entries = m.Entries[:n-1]
				}
			})},
		{name: "the last of each page is shown again", caught: "list/pages-hold-each-volume-exactly-once",
			fault: answers(func(_ *reference, m listResp) {
				if n := len(m.GetEntries()); n > 1 && m.GetNextToken() != "" {
					m.NextToken = refToken + m.GetEntries()[n-2].GetVolume().GetId()
				}
			})},
		{name: "a full page has a token though nothing is left", caught: "list/one-large-page-has-no-token",
			fault: after(func(_ *reference, req listReq, m listResp) {
				if n := len(m.GetEntries()); n > 0 && n == int(req.GetMaxEntries()) {
					m.NextToken = refToken + m.GetEntries()[n-1].GetVolume().GetId()
				}
			})},
		{name: "a bad token is the beginning", caught: "list/bad-token-is-aborted",
			fault: asks(func(_ *reference, m listReq) {
				if !strings.HasPrefix(m.GetStartingToken(), refToken) {
					m.StartingToken = ""
				}
			})},
		{name: "a bad token is INVALID_ARGUMENT", caught: "list/bad-token-is-aborted",
			fault: recodes[listReq](codes.Aborted, codes.InvalidArgument, nil)},
		{name: "negative is no limit", caught: "list/negative-max-entries-is-refused",
			fault: asks(func(_ *reference, m listReq) { m.MaxEntries = max(m.MaxEntries, 0) })},
		{name: "a token of a deleted volume is the beginning", caught: "list/deletion-between-pages-repeats-and-loses-nothing",
			fault: asks(func(r *reference, m listReq) {
				if id, ok := strings.CutPrefix(m.GetStartingToken(), refToken); ok && r.volumes[id] == nil {
					m.StartingToken = ""
				}
			})},
	}
}

func capacityMutants() []mutant {
	return []mutant{
		{name: "negative", caught: "capacity/is-never-negative",
			fault: answers(func(_ *reference, m capacityResp) { m.AvailableCapacity = -1 })},
		{name: "unknown parameters are ignored", caught: "capacity/unknown-parameter-has-none",
			fault: asks(func(_ *reference, m capacityReq) { m.Parameters = nil })},
		{name: "capabilities are ignored", caught: "capacity/unsupported-capability-has-none",
			fault: asks(func(_ *reference, m capacityReq) {
				if allWellFormed(m.GetVolumeCapabilities()) == nil {
					m.VolumeCapabilities = nil
				}
			})},
	}
}
