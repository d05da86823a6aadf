package sanityv0

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Missing fields are INVALID_ARGUMENT before anything is looked up. So each
// request is sent in two forms, one that names what exists and one that names
// what does not.
func requiredChecks() []Check {
	return []Check{
		{Name: "required/create-volume-refuses-each-missing-field", Section: "3, CreateVolume", needs: needVolumes, run: requiredCreate},
		{Name: "required/delete-volume-refuses-a-missing-id", Section: "3, DeleteVolume", needs: needVolumes, run: requiredDelete},
		{Name: "required/controller-publish-refuses-each-missing-field", Section: "3, ControllerPublishVolume", needs: needVolumes | needPublish, run: requiredPublish},
		{Name: "required/controller-unpublish-refuses-a-missing-id", Section: "3, ControllerUnpublishVolume", needs: needVolumes | needPublish, run: requiredUnpublish},
		{Name: "required/validate-refuses-each-missing-field", Section: "3, ValidateVolumeCapabilities", needs: needVolumes, run: requiredValidate},
		{Name: "required/get-capacity-refuses-a-broken-capability", Section: "3, GetCapacity", needs: needCapacity, run: requiredCapacity},
		{Name: "required/stage-refuses-each-missing-field", Section: "3, NodeStageVolume", needs: needNode, run: requiredStage},
		{Name: "required/unstage-refuses-each-missing-field", Section: "3, NodeUnstageVolume", needs: needNode, run: requiredUnstage},
		{Name: "required/node-publish-refuses-each-missing-field", Section: "3, NodePublishVolume", needs: needNode, run: requiredNodePublish},
		{Name: "required/node-unpublish-refuses-each-missing-field", Section: "3, NodeUnpublishVolume", needs: needNode, run: requiredNodeUnpublish},
	}
}

// defect is one way to spoil a request.
type defect[M proto.Message] struct {
	what  string
	spoil func(M)
}

// refusesEach sends every good request with every defect, one at a time.
func refusesEach[M proto.Message](c *C, rpc string, call func(M) error, good map[string]M, defects []defect[M]) {
	for which, m := range inOrder(good) {
		for _, d := range defects {
			spoiled := proto.Clone(m).(M)
			d.spoil(spoiled)
			c.want(call(spoiled), rpc+" "+which+", "+d.what, codes.InvalidArgument)
		}
	}
}

// brokenCapability is one that no request may hold.
type brokenCapability struct {
	what string
	cap  *csi.VolumeCapability
}

func (s *suite) brokenCapabilities() []brokenCapability {
	mode := func(m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability { return s.o.capability(m) }
	return []brokenCapability{
		{"a capability without access type", &csi.VolumeCapability{AccessMode: mode(singleWriter).GetAccessMode()}},
		{"a capability without access mode", with(mode(singleWriter), func(v *csi.VolumeCapability) { v.AccessMode = nil })},
		{"access mode UNKNOWN", mode(csi.VolumeCapability_AccessMode_UNKNOWN)},
		{"access mode 6 (of csi.v1)", mode(6)},
		{"access mode 7 (of csi.v1)", mode(7)},
		{"access mode 99", mode(99)},
	}
}

// defects are the given ones and each capability that no request may hold.
func defects[M proto.Message](s *suite, given []defect[M], hold func(M, *csi.VolumeCapability)) []defect[M] {
	broken := s.brokenCapabilities()
	all := make([]defect[M], 0, len(given)+len(broken))
	all = append(all, given...)
	for _, b := range broken {
		all = append(all, defect[M]{b.what, func(m M) { hold(m, b.cap) }})
	}
	return all
}

const (
	ofExisting = "of an existing volume"
	ofUnknown  = "of an unknown volume"
	// noVolume is no id that a plugin gave.
	noVolume = "sanity-no-such-volume"
)

func requiredCreate(c *C) {
	type request = *csi.CreateVolumeRequest
	call := func(r request) error {
		_, err := c.controller.CreateVolume(c.ctx, r)
		return err
	}
	good := map[string]request{ofExisting: c.base().request, ofUnknown: c.createRequest("spoiled")}
	refusesEach(c, "CreateVolume", call, good, defects(c.suite, []defect[request]{
		{"without name", func(r request) { r.Name = "" }},
		{"without capabilities", func(r request) { r.VolumeCapabilities = nil }},
	}, func(r request, broken *csi.VolumeCapability) { r.VolumeCapabilities = []*csi.VolumeCapability{broken} }))
	refusesEach(c, "CreateVolume with a good capability", call, good, defects(c.suite, nil,
		func(r request, broken *csi.VolumeCapability) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, broken)
		}))
}

func requiredDelete(c *C) {
	_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(""))
	c.want(err, "DeleteVolume without volume_id", codes.InvalidArgument)
}

func requiredPublish(c *C) {
	type request = *csi.ControllerPublishVolumeRequest
	v := c.at(c.base(), created)
	refusesEach(c, "ControllerPublishVolume", func(r request) error {
		_, err := c.controller.ControllerPublishVolume(c.ctx, r)
		return err
	}, map[string]request{
		ofExisting: c.publishRequest(v, c.nodeID),
		ofUnknown:  with(c.publishRequest(v, "sanity-no-such-node"), func(r request) { r.VolumeId = noVolume }),
	}, defects(c.suite, []defect[request]{
		{"without volume_id", func(r request) { r.VolumeId = "" }},
		{"without node_id", func(r request) { r.NodeId = "" }},
		{"without capability", func(r request) { r.VolumeCapability = nil }},
	}, func(r request, broken *csi.VolumeCapability) { r.VolumeCapability = broken }))
}

func requiredUnpublish(c *C) {
	for _, node := range []string{c.nodeID, "sanity-no-such-node", ""} {
		_, err := c.controller.ControllerUnpublishVolume(c.ctx, c.unpublishRequest("", node))
		c.want(err, "ControllerUnpublishVolume without volume_id", codes.InvalidArgument)
	}
}

func requiredValidate(c *C) {
	type request = *csi.ValidateVolumeCapabilitiesRequest
	call := func(r request) error {
		_, err := c.controller.ValidateVolumeCapabilities(c.ctx, r)
		return err
	}
	existing := c.validateRequest(c.base(), c.o.capability(singleWriter))
	good := map[string]request{
		ofExisting: existing,
		ofUnknown:  with(proto.Clone(existing).(request), func(r request) { r.VolumeId = noVolume }),
	}
	refusesEach(c, "ValidateVolumeCapabilities", call, good, defects(c.suite, []defect[request]{
		{"without volume_id", func(r request) { r.VolumeId = "" }},
		{"without capabilities", func(r request) { r.VolumeCapabilities = nil }},
	}, func(r request, broken *csi.VolumeCapability) { r.VolumeCapabilities = []*csi.VolumeCapability{broken} }))
	refusesEach(c, "ValidateVolumeCapabilities with a good capability", call, good, defects(c.suite, nil,
		func(r request, broken *csi.VolumeCapability) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, broken)
		}))
}

func requiredCapacity(c *C) {
	for _, b := range c.brokenCapabilities() {
		_, err := c.controller.GetCapacity(c.ctx, &csi.GetCapacityRequest{
			VolumeCapabilities: []*csi.VolumeCapability{b.cap},
			Parameters:         c.o.Parameters,
		})
		c.want(err, "GetCapacity with "+b.what, codes.InvalidArgument)
	}
}

func requiredStage(c *C) {
	type request = *csi.NodeStageVolumeRequest
	v := c.at(c.base(), published)
	refusesEach(c, "NodeStageVolume", c.stage, map[string]request{
		ofExisting: c.stageRequest(v),
		ofUnknown:  with(c.stageRequest(v), func(r request) { r.VolumeId = noVolume }),
	}, defects(c.suite, []defect[request]{
		{"without volume_id", func(r request) { r.VolumeId = "" }},
		{"without staging_target_path", func(r request) { r.StagingTargetPath = "" }},
		{"without capability", func(r request) { r.VolumeCapability = nil }},
	}, func(r request, broken *csi.VolumeCapability) { r.VolumeCapability = broken }))
}

func requiredUnstage(c *C) {
	type request = *csi.NodeUnstageVolumeRequest
	v := c.base()
	refusesEach(c, "NodeUnstageVolume", func(r request) error {
		_, err := c.node.NodeUnstageVolume(c.ctx, r)
		return err
	}, map[string]request{
		ofExisting: {VolumeId: v.GetId(), StagingTargetPath: v.staging},
		ofUnknown:  {VolumeId: noVolume, StagingTargetPath: v.staging},
	}, []defect[request]{
		{"without volume_id", func(r request) { r.VolumeId = "" }},
		{"without staging_target_path", func(r request) { r.StagingTargetPath = "" }},
	})
}

func requiredNodePublish(c *C) {
	type request = *csi.NodePublishVolumeRequest
	v := c.at(c.base(), published)
	refusesEach(c, "NodePublishVolume", c.nodePublish, map[string]request{
		ofExisting: c.nodePublishRequest(v),
		ofUnknown:  with(c.nodePublishRequest(v), func(r request) { r.VolumeId = noVolume }),
	}, defects(c.suite, []defect[request]{
		{"without volume_id", func(r request) { r.VolumeId = "" }},
		{"without target_path", func(r request) { r.TargetPath = "" }},
		{"without capability", func(r request) { r.VolumeCapability = nil }},
	}, func(r request, broken *csi.VolumeCapability) { r.VolumeCapability = broken }))
}

func requiredNodeUnpublish(c *C) {
	type request = *csi.NodeUnpublishVolumeRequest
	v := c.base()
	refusesEach(c, "NodeUnpublishVolume", func(r request) error {
		_, err := c.node.NodeUnpublishVolume(c.ctx, r)
		return err
	}, map[string]request{
		ofExisting: {VolumeId: v.GetId(), TargetPath: v.target},
		ofUnknown:  {VolumeId: noVolume, TargetPath: v.target},
	}, []defect[request]{
		{"without volume_id", func(r request) { r.VolumeId = "" }},
		{"without target_path", func(r request) { r.TargetPath = "" }},
	})
}
