package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func unpublishChecks() []Check {
	const section = "3, ControllerUnpublishVolume"
	const needs = needVolumes | needPublish
	return []Check{
		{Name: "unpublish/repeat-is-ok", Section: section, needs: needs, run: checkUnpublishRepeat},
		{Name: "unpublish/not-published-there-is-ok", Section: section, needs: needs | needOtherNode, run: checkUnpublishOtherNode},
		{Name: "unpublish/unknown-volume-is-not-found", Section: section, needs: needs, run: checkUnpublishUnknownVolume},
		{Name: "unpublish/unknown-node-is-not-found", Section: section, needs: needs, run: checkUnpublishUnknownNode},
		{Name: "unpublish/closes-the-volume", Section: section, needs: needs, run: checkUnpublishCloses},
		{Name: "unpublish/without-node-closes-the-volume", Section: section, needs: needs, run: checkUnpublishAll},
		{Name: "unpublish/volume-moves-to-another-node", Section: section, needs: needs | needOtherNode, run: checkUnpublishMove},
	}
}

func checkUnpublishRepeat(c *C) {
	v := c.at(c.base(), created)
	for range 2 {
		c.want(c.unpublish(c.ctx, v, c.nodeID), "ControllerUnpublishVolume of what is not published", codes.OK)
		c.want(c.unpublish(c.ctx, v, ""), "ControllerUnpublishVolume from all nodes of what is not published", codes.OK)
	}
}

func checkUnpublishOtherNode(c *C) {
	v := c.at(c.base(), published)
	c.want(c.unpublish(c.ctx, v, c.o.OtherNodeID), "ControllerUnpublishVolume from a node that does not have it", codes.OK)
	c.wantPublished(v, c.nodeID, "after the unpublish from another node")
}

func checkUnpublishUnknownVolume(c *C) {
	for what, node := range inOrder(map[string]string{"from a node": c.nodeID, "from all nodes": ""}) {
		_, err := c.controller.ControllerUnpublishVolume(c.ctx, c.unpublishRequest(noVolume, node))
		c.want(err, "ControllerUnpublishVolume of an unknown volume "+what, codes.NotFound)
	}
}

func checkUnpublishUnknownNode(c *C) {
	for what, l := range inOrder(map[string]level{"a volume": created, "a published volume": published}) {
		c.want(c.unpublish(c.ctx, c.at(c.base(), l), "sanity-no-such-node"), "ControllerUnpublishVolume of "+what+" from an unknown node", codes.NotFound)
	}
}

// wantClosed publishes v to the node with the other readonly flag, which fits
// only where nothing is published, and takes it back.
func (c *C) wantClosed(v *volume, node, when string) {
	_, err := c.controller.ControllerPublishVolume(c.ctx, with(c.publishRequest(v, node), func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true }))
	if c.want(err, "ControllerPublishVolume with the other readonly "+when, codes.OK) {
		c.must(c.unpublish(c.ctx, v, node), "ControllerUnpublishVolume")
	}
}

func checkUnpublishCloses(c *C) {
	v := c.at(c.at(c.base(), published), created)
	c.wantClosed(v, c.nodeID, "after ControllerUnpublishVolume")
}

func checkUnpublishAll(c *C) {
	v := c.at(c.base(), published)
	c.must(c.unpublish(c.ctx, v, ""), "ControllerUnpublishVolume without node_id")
	v.level = created
	c.wantClosed(v, c.nodeID, "after ControllerUnpublishVolume without node_id")
}

func checkUnpublishMove(c *C) {
	v := c.at(c.at(c.base(), published), created)
	_, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.o.OtherNodeID))
	c.must(err, "ControllerPublishVolume to the second node, after the unpublish from the first")
	_, err = c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
	c.want(err, "ControllerPublishVolume to the first node, while the second has the volume", codes.FailedPrecondition)
	c.must(c.unpublish(c.ctx, v, c.o.OtherNodeID), "ControllerUnpublishVolume from the second node")
}
