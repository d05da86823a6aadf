package sanityv0

import (
	"strings"

	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func publishChecks() []Check {
	const section = "3, ControllerPublishVolume"
	const needs = needVolumes | needPublish
	return []Check{
		{Name: "publish/repeat-gives-the-same-answer", Section: section, needs: needs, run: checkPublishRepeat},
		{Name: "publish/other-readonly-already-exists", Section: section, needs: needs, run: checkPublishReadonly},
		{Name: "publish/other-capability-already-exists", Section: section, needs: needs, run: checkPublishCapability},
		{Name: "publish/unknown-volume-is-not-found", Section: section, needs: needs, run: checkPublishUnknownVolume},
		{Name: "publish/unknown-node-is-not-found", Section: section, needs: needs, run: checkPublishUnknownNode},
		{Name: "publish/second-node-is-refused-naming-the-first", Section: section, needs: needs | needOtherNode, run: checkPublishSecondNode},
		{Name: "publish/mode-for-several-nodes-opens-no-single-node-volume", Section: section, needs: needs | needOtherNode, run: checkPublishBeyond},
		{Name: "publish/published-volume-is-not-deleted", Section: "3, DeleteVolume", needs: needs, run: checkPublishedDelete},
	}
}

// wantPublished asserts that v is still open to that node for writing: a publish
// with the other readonly flag does not fit what is there.
func (c *C) wantPublished(v *volume, node, when string) {
	_, err := c.controller.ControllerPublishVolume(c.ctx, with(c.publishRequest(v, node), func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true }))
	c.want(err, "ControllerPublishVolume with the other readonly "+when+", as it is published there", codes.AlreadyExists)
}

func checkPublishRepeat(c *C) {
	v := c.at(c.base(), published)
	for range 2 {
		resp, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
		c.must(err, "ControllerPublishVolume again")
		c.wantEqual("ControllerPublishVolume again", &csi.ControllerPublishVolumeResponse{PublishInfo: v.info}, resp)
	}
}

func checkPublishReadonly(c *C) {
	v := c.at(c.base(), published)
	c.wantPublished(v, c.nodeID, "")
	resp, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
	c.must(err, "ControllerPublishVolume as at first, after a refused one")
	c.wantEqual("ControllerPublishVolume after a refused one", &csi.ControllerPublishVolumeResponse{PublishInfo: v.info}, resp)
}

func checkPublishCapability(c *C) {
	v := c.at(c.base(), published)
	_, err := c.controller.ControllerPublishVolume(c.ctx, with(c.publishRequest(v, c.nodeID), func(r *csi.ControllerPublishVolumeRequest) {
		r.VolumeCapability = c.o.capability(singleReader)
	}))
	c.want(err, "ControllerPublishVolume with the other capability of the volume", codes.AlreadyExists)
}

func checkPublishUnknownVolume(c *C) {
	v := c.base()
	_, err := c.controller.ControllerPublishVolume(c.ctx, with(c.publishRequest(v, c.nodeID), func(r *csi.ControllerPublishVolumeRequest) { r.VolumeId = noVolume }))
	c.want(err, "ControllerPublishVolume of an unknown volume", codes.NotFound)
}

func checkPublishUnknownNode(c *C) {
	for what, l := range inOrder(map[string]level{"a volume": created, "a published volume": published}) {
		v := c.at(c.base(), l)
		_, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, "sanity-no-such-node"))
		c.want(err, "ControllerPublishVolume of "+what+" to an unknown node", codes.NotFound)
	}
}

// nodeName is the part of a node id by which a message must name the node: all
// of it, or what stands before the addresses.
func nodeName(id string) string {
	name, _, _ := strings.Cut(id, "@")
	return name
}

func checkPublishSecondNode(c *C) {
	v := c.at(c.base(), published)
	_, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.o.OtherNodeID))
	if c.want(err, "ControllerPublishVolume to a second node", codes.FailedPrecondition) && !strings.Contains(err.Error(), nodeName(c.nodeID)) {
		c.Errorf("the message does not name the node %q that has the volume: %v", c.nodeID, err)
	}
	c.wantPublished(v, c.nodeID, "after a refused publish to a second node")
}

// checkPublishBeyond asks for more than the volume was made for.
func checkPublishBeyond(c *C) {
	v := c.at(c.base(), published)
	_, err := c.controller.ControllerPublishVolume(c.ctx, with(c.publishRequest(v, c.o.OtherNodeID), func(r *csi.ControllerPublishVolumeRequest) {
		r.VolumeCapability = c.o.capability(multiWriter)
	}))
	c.want(err, "ControllerPublishVolume to a second node in a mode that the volume was not made for", codes.FailedPrecondition, codes.InvalidArgument)
}

func checkPublishedDelete(c *C) {
	v := c.at(c.base(), published)
	_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(v.GetId()))
	c.want(err, "DeleteVolume of a published volume", codes.FailedPrecondition)
	c.wantPublished(v, c.nodeID, "after a refused deletion")
	resp, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
	c.must(err, "ControllerPublishVolume again, after a refused deletion")
	c.wantEqual("ControllerPublishVolume after a refused deletion", &csi.ControllerPublishVolumeResponse{PublishInfo: v.info}, resp)
}
