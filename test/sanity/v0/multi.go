package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func multiNodeChecks() []Check {
	const publish = "3, ControllerPublishVolume"
	const unpublish = "3, ControllerUnpublishVolume"
	const matrix = "3, matrix of NodePublishVolume"
	const twoNodes = needVolumes | needPublish | needMultiNode | needOtherNode
	const oneNode = needNode | needMultiNode
	return []Check{
		{Name: "multi/second-node-is-accepted", Section: publish, needs: twoNodes, run: checkMultiSecondNode},
		{Name: "multi/unpublish-of-one-node-leaves-the-other", Section: unpublish, needs: twoNodes, run: checkMultiUnpublishOne},
		{Name: "multi/volume-of-two-nodes-is-not-deleted", Section: "3, DeleteVolume", needs: twoNodes, run: checkMultiDelete},
		{Name: "multi/unpublish-without-node-closes-all", Section: unpublish, needs: twoNodes, run: checkMultiUnpublishAll},
		{Name: "multi/same-target-same-arguments-is-ok", Section: matrix, needs: oneNode, run: checkMultiSameSame},
		{Name: "multi/same-target-other-arguments-already-exists", Section: matrix, needs: oneNode, run: checkMultiSameOther},
		{Name: "multi/other-target-same-arguments-is-ok", Section: matrix, needs: oneNode, run: checkMultiOtherSame},
		{Name: "multi/other-target-other-arguments-is-ok", Section: matrix, needs: oneNode, run: checkMultiOtherOther},
		{Name: "multi/two-targets-show-one-volume", Section: matrix, needs: oneNode | needData, run: checkMultiData},
	}
}

// atBothNodes opens the shared volume for several nodes to both.
func (c *C) atBothNodes() *volume {
	v := c.at(c.multi(), published)
	_, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.o.OtherNodeID))
	c.must(err, "ControllerPublishVolume of a volume for several nodes to a second one")
	return v
}

func checkMultiSecondNode(c *C) {
	v := c.atBothNodes()
	c.wantPublished(v, c.nodeID, "at the first of two nodes")
	c.wantPublished(v, c.o.OtherNodeID, "at the second of two nodes")
}

func checkMultiUnpublishOne(c *C) {
	v := c.atBothNodes()
	c.must(c.unpublish(c.ctx, v, c.nodeID), "ControllerUnpublishVolume from the first of two nodes")
	v.level = created
	c.wantPublished(v, c.o.OtherNodeID, "after the unpublish from the other")
	c.wantClosed(v, c.nodeID, "after the unpublish from it")
}

func checkMultiDelete(c *C) {
	v := c.atBothNodes()
	c.must(c.unpublish(c.ctx, v, c.nodeID), "ControllerUnpublishVolume from the first of two nodes")
	v.level = created
	_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(v.GetId()))
	c.want(err, "DeleteVolume of a volume that one of two nodes still has", codes.FailedPrecondition)
}

func checkMultiUnpublishAll(c *C) {
	v := c.atBothNodes()
	c.must(c.unpublish(c.ctx, v, ""), "ControllerUnpublishVolume without node_id")
	v.level = created
	c.wantClosed(v, c.nodeID, "at the first node after the unpublish from all")
	c.wantClosed(v, c.o.OtherNodeID, "at the second node after the unpublish from all")
}

func checkMultiSameSame(c *C) {
	v := c.at(c.multi(), nodePublished)
	c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume again", codes.OK)
	c.wantMounted(v.target, 1, "after a repeat of NodePublishVolume")
}

func checkMultiSameOther(c *C) {
	c.refusedAgain(c.at(c.multi(), nodePublished), "with the other readonly", codes.AlreadyExists, func(r *csi.NodePublishVolumeRequest) { r.Readonly = true })
}

// secondTarget publishes the shared volume for several nodes at a second target
// of this node, judges, and takes it back.
func (c *C) secondTarget(what string, edit func(*csi.NodePublishVolumeRequest), judge func(v *volume)) {
	v := c.at(c.multi(), nodePublished)
	c.makeDir(v.second)
	r := c.nodePublishRequest(v)
	r.TargetPath = v.second
	if edit != nil {
		edit(r)
	}
	c.must(c.nodePublish(r), "NodePublishVolume at a second target "+what)
	c.wantMounted(v.target, 1, "after a publish at a second target")
	c.wantMounted(v.second, 1, "after a publish there")
	judge(v)
	c.must(c.nodeUnpublish(c.ctx, v, v.second), "NodeUnpublishVolume of the second target")
	c.wantMounted(v.second, 0, "after an unpublish there")
	c.wantMounted(v.target, 1, "after an unpublish of the second target")
}

func checkMultiOtherSame(c *C) {
	c.secondTarget("with the same arguments", nil, func(v *volume) {
		c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume at the first target again", codes.OK)
	})
}

// checkMultiOtherOther: the kernel lets a device be written through a readonly
// bind mount of its node, so one node cannot have a block volume in both ways;
// there it is an attribute of the orchestrator's own that differs.
func checkMultiOtherOther(c *C) {
	if c.o.Block {
		c.secondTarget("with another attribute", func(r *csi.NodePublishVolumeRequest) { r.VolumeAttributes[provisionerKey] = "sanity-other" }, func(v *volume) {
			c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume at the first target again", codes.OK)
		})
		return
	}
	c.secondTarget("with the other readonly", func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }, func(v *volume) {
		if !c.o.Host.hasData() {
			return
		}
		if err := c.o.Host.Write(v.second, false, c.pattern("readonly")); err == nil {
			c.Errorf("a target that is published readonly takes a write")
		}
	})
}

func checkMultiData(c *C) {
	c.secondTarget("with the same arguments", nil, func(v *volume) {
		data := c.pattern("two targets")
		c.write(v.target, data)
		c.wantData(v.second, data, "after a write at the other target")
	})
}
