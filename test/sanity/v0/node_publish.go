package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func nodePublishChecks() []Check {
	const section = "3, NodePublishVolume"
	const matrix = "3, matrix of NodePublishVolume"
	return []Check{
		{Name: "node-publish/without-staging-path-is-a-failed-precondition", Section: section, needs: needNode, run: checkNodePublishNoStaging},
		{Name: "node-publish/not-staged-is-a-failed-precondition", Section: section, needs: needNode, run: checkNodePublishNotStaged},
		{Name: "node-publish/relative-target-is-refused", Section: section, needs: needNode, run: checkNodePublishRelative},
		{Name: "node-publish/missing-target-is-made", Section: "2, target_path", needs: needNode, run: checkNodePublishMissingTarget},
		{Name: "node-publish/same-target-same-arguments-is-ok", Section: matrix, needs: needNode, run: checkMatrixSameSame},
		{Name: "node-publish/same-target-other-readonly-already-exists", Section: matrix, needs: needNode, run: checkMatrixSameReadonly},
		{Name: "node-publish/same-target-other-capability-already-exists", Section: matrix, needs: needNode, run: checkMatrixSameCapability},
		{Name: "node-publish/other-target-same-arguments-is-refused", Section: matrix, needs: needNode, run: checkMatrixOtherSame},
		{Name: "node-publish/other-target-other-arguments-is-refused", Section: matrix, needs: needNode, run: checkMatrixOtherOther},
		{Name: "node-publish/one-unpublish-undoes-repeated-publishes", Section: "3, NodeUnpublishVolume", needs: needNode, run: checkNodePublishStack},
		{Name: "node-publish/unpublish-repeats-and-finds-nothing-with-ok", Section: "3, NodeUnpublishVolume", needs: needNode, run: checkNodeUnpublishRepeat},
		{Name: "node-publish/unpublish-leaves-the-volume-staged", Section: "3, NodeUnpublishVolume", needs: needNode, run: checkNodeUnpublishLeaves},
	}
}

func (c *C) nodePublish(r *csi.NodePublishVolumeRequest) error {
	_, err := c.node.NodePublishVolume(c.ctx, r)
	return err
}

func checkNodePublishNoStaging(c *C) {
	for what, l := range inOrder(map[string]level{"a volume that is not staged": published, "a staged volume": staged}) {
		v := c.at(c.base(), l)
		c.makeDir(v.target)
		r := c.nodePublishRequest(v)
		r.StagingTargetPath = ""
		c.want(c.nodePublish(r), "NodePublishVolume of "+what+" without staging_target_path", codes.FailedPrecondition)
		c.wantMounted(v.target, 0, "after the refused call")
	}
}

// checkNodePublishNotStaged finds a plain directory at the staging path, as after
// a reboot. Binding it would let the workload write to the node's own disk.
func checkNodePublishNotStaged(c *C) {
	v := c.at(c.base(), published)
	c.makeDir(v.staging)
	c.makeDir(v.target)
	c.wantMounted(v.staging, 0, "before anything is staged")
	err := c.nodePublish(c.nodePublishRequest(v))
	if !c.want(err, "NodePublishVolume of what is not staged", codes.FailedPrecondition, codes.OK) {
		return
	}
	if err != nil {
		c.wantMounted(v.target, 0, "after the refused call")
		return
	}
	// OK only for a plugin that stages the volume inside the call.
	if c.mounted(v.staging) == 0 {
		c.Errorf("NodePublishVolume of what is not staged: got OK, but nothing is mounted at the staging path")
	}
	c.must(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume")
	c.must(c.unstage(c.ctx, v, v.staging), "NodeUnstageVolume")
}

func checkNodePublishRelative(c *C) {
	v := c.at(c.base(), staged)
	for _, path := range []string{"sanity-relative", "./sanity-relative", "../sanity-relative"} {
		r := c.nodePublishRequest(v)
		r.TargetPath = path
		c.want(c.nodePublish(r), "NodePublishVolume at the relative path "+path, codes.InvalidArgument)
	}
}

func checkNodePublishMissingTarget(c *C) {
	v := c.at(c.base(), staged)
	if err := c.o.Host.Remove(v.target); err != nil {
		c.Fatalf("%v", err)
	}
	c.must(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume at a target path that does not exist")
	v.level = nodePublished
	c.wantMounted(v.target, 1, "after NodePublishVolume")
}

func checkMatrixSameSame(c *C) {
	v := c.at(c.base(), nodePublished)
	c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume again", codes.OK)
	c.wantMounted(v.target, 1, "after a repeat of NodePublishVolume")
}

// refusedAgain sends the publish of v with an edit, and asserts that the refusal
// has changed nothing.
func (c *C) refusedAgain(v *volume, what string, want codes.Code, edit func(*csi.NodePublishVolumeRequest)) {
	r := c.nodePublishRequest(v)
	edit(r)
	c.makeDir(v.second)
	c.want(c.nodePublish(r), "NodePublishVolume again "+what, want)
	c.wantMounted(v.target, 1, "after a refused NodePublishVolume")
	if v.mode == singleWriter {
		c.wantMounted(v.second, 0, "after a refused NodePublishVolume")
	}
	c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume as at first, after a refused one", codes.OK)
}

func checkMatrixSameReadonly(c *C) {
	c.refusedAgain(c.at(c.base(), nodePublished), "with the other readonly", codes.AlreadyExists, func(r *csi.NodePublishVolumeRequest) { r.Readonly = true })
}

func checkMatrixSameCapability(c *C) {
	c.refusedAgain(c.at(c.base(), nodePublished), "with the other capability of the volume", codes.AlreadyExists, func(r *csi.NodePublishVolumeRequest) {
		r.VolumeCapability = c.o.capability(singleReader)
	})
}

func checkMatrixOtherSame(c *C) {
	v := c.at(c.base(), nodePublished)
	c.refusedAgain(v, "at a second target", codes.FailedPrecondition, func(r *csi.NodePublishVolumeRequest) { r.TargetPath = v.second })
}

func checkMatrixOtherOther(c *C) {
	v := c.at(c.base(), nodePublished)
	c.refusedAgain(v, "at a second target with the other readonly", codes.FailedPrecondition, func(r *csi.NodePublishVolumeRequest) {
		r.TargetPath, r.Readonly = v.second, true
	})
}

func checkNodePublishStack(c *C) {
	v := c.at(c.base(), nodePublished)
	for range 4 {
		c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume again", codes.OK)
	}
	c.wantMounted(v.target, 1, "after five equal publishes")
	c.must(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume")
	v.level = staged
	c.wantMounted(v.target, 0, "after one unpublish")
}

// checkNodeUnpublishRepeat also sends the call for a target that is gone, as
// after an unpublish that was cut off before its answer.
func checkNodeUnpublishRepeat(c *C) {
	v := c.at(c.at(c.base(), nodePublished), staged)
	c.want(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume again", codes.OK)
	if err := c.o.Host.Remove(v.target); err != nil {
		c.Errorf("%v", err)
	}
	c.want(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume of a target that is gone", codes.OK)
	c.makeDir(v.target)
	c.want(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume of an empty directory", codes.OK)
}

func checkNodeUnpublishLeaves(c *C) {
	v := c.at(c.base(), staged)
	lines := c.mounted(v.staging)
	c.at(c.at(v, nodePublished), staged)
	c.wantMounted(v.staging, lines, "after NodePublishVolume and NodeUnpublishVolume")
	c.at(v, nodePublished)
	c.wantMounted(v.target, 1, "after a second NodePublishVolume")
}
