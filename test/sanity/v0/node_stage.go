package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func stageChecks() []Check {
	const section = "3, NodeStageVolume"
	return []Check{
		{Name: "stage/unknown-volume-is-not-found", Section: section, needs: needNode, run: checkStageUnknown},
		{Name: "stage/deleted-volume-is-not-staged", Section: section, needs: needNode, run: checkStageDeleted},
		{Name: "stage/relative-path-is-refused", Section: section, needs: needNode, run: checkStageRelative},
		{Name: "stage/capability-beyond-the-volume-is-refused", Section: section, needs: needNode, run: checkStageBeyond},
		{Name: "stage/repeat-is-ok-and-stacks-nothing", Section: section, needs: needNode, run: checkStageRepeat},
		{Name: "stage/other-capability-already-exists", Section: section, needs: needNode, run: checkStageOtherCapability},
		{Name: "stage/other-access-type-is-refused", Section: section, needs: needNode, run: checkStageOtherAccess},
		{Name: "stage/second-path-is-independent-or-refused", Section: section, needs: needNode, run: checkStageSecondPath},
		{Name: "stage/unstage-of-what-is-not-staged-is-ok", Section: "3, NodeUnstageVolume", needs: needNode, run: checkUnstageNothing},
		{Name: "stage/unstage-leaves-no-mount", Section: "3, NodeUnstageVolume", needs: needNode, run: checkUnstage},
	}
}

func (c *C) stage(r *csi.NodeStageVolumeRequest) error {
	_, err := c.node.NodeStageVolume(c.ctx, r)
	return err
}

func checkStageUnknown(c *C) {
	v := c.at(c.base(), published)
	c.makeDir(v.staging)
	r := c.stageRequest(v)
	r.VolumeId = noVolume
	c.want(c.stage(r), "NodeStageVolume of an unknown volume with the publish info of another", codes.NotFound)
	r.PublishInfo, r.VolumeAttributes = nil, nil
	c.want(c.stage(r), "NodeStageVolume of an unknown volume", codes.NotFound)
	c.wantMounted(v.staging, 0, "after the refused calls")
}

// checkStageDeleted sends what was true once. A node cannot ask the controller,
// so it may also say that the volume is not published or cannot be reached.
func checkStageDeleted(c *C) {
	v := c.at(c.shared("plain"), published)
	c.remove(v)
	c.makeDir(v.staging)
	c.want(c.stage(c.stageRequest(v)), "NodeStageVolume of a deleted volume with its last publish info",
		codes.NotFound, codes.FailedPrecondition, codes.Unavailable)
	c.wantMounted(v.staging, 0, "after the refused call")
	c.must(c.unstage(c.ctx, v, v.staging), "NodeUnstageVolume of a deleted volume")
}

func checkStageRelative(c *C) {
	v := c.at(c.base(), published)
	for _, path := range []string{"sanity-relative", "./sanity-relative", "../sanity-relative"} {
		r := c.stageRequest(v)
		r.StagingTargetPath = path
		c.want(c.stage(r), "NodeStageVolume at the relative path "+path, codes.InvalidArgument)
	}
}

func checkStageBeyond(c *C) {
	v := c.at(c.base(), published)
	c.makeDir(v.staging)
	r := c.stageRequest(v)
	r.VolumeCapability = c.o.capability(multiWriter)
	c.want(c.stage(r), "NodeStageVolume in a mode that the volume was not made for", codes.FailedPrecondition, codes.InvalidArgument)
	c.wantMounted(v.staging, 0, "after the refused call")
}

func checkStageRepeat(c *C) {
	v := c.at(c.base(), staged)
	lines := c.mounted(v.staging)
	if lines > 1 {
		c.Errorf("%s has %d mount lines after one NodeStageVolume", v.staging, lines)
	}
	for range 2 {
		c.want(c.stage(c.stageRequest(v)), "NodeStageVolume again", codes.OK)
	}
	c.wantMounted(v.staging, lines, "after repeats of NodeStageVolume")
}

func checkStageOtherCapability(c *C) {
	v := c.at(c.base(), staged)
	lines := c.mounted(v.staging)
	r := c.stageRequest(v)
	r.VolumeCapability = c.o.capability(singleReader)
	c.want(c.stage(r), "NodeStageVolume again with the other capability of the volume", codes.AlreadyExists)
	c.wantMounted(v.staging, lines, "after a refused NodeStageVolume")
	c.want(c.stage(c.stageRequest(v)), "NodeStageVolume as at first, after a refused one", codes.OK)
}

// checkStageOtherAccess: which of two faults is named is the plugin's choice.
func checkStageOtherAccess(c *C) {
	v := c.at(c.base(), staged)
	r := c.stageRequest(v)
	r.VolumeCapability = c.o.otherAccess()
	c.want(c.stage(r), "NodeStageVolume again with the other access type", codes.AlreadyExists, codes.FailedPrecondition, codes.InvalidArgument)
}

// checkStageSecondPath is what an orchestrator does whose paths have changed in
// an upgrade: the old path is unstaged later, and must not take the new one down.
func checkStageSecondPath(c *C) {
	v := c.at(c.base(), staged)
	second := v.staging + "2"
	c.paths = append(c.paths, second)
	c.makeDir(second)
	lines := c.mounted(v.staging)
	r := c.stageRequest(v)
	r.StagingTargetPath = second
	if !c.want(c.stage(r), "NodeStageVolume at a second path", codes.OK, codes.FailedPrecondition) {
		return
	}
	c.must(c.unstage(c.ctx, v, second), "NodeUnstageVolume of the second path")
	c.wantMounted(second, 0, "after NodeUnstageVolume")
	c.wantMounted(v.staging, lines, "after NodeUnstageVolume of another path")
	c.makeDir(v.target)
	_, err := c.node.NodePublishVolume(c.ctx, c.nodePublishRequest(v))
	c.must(err, "NodePublishVolume from the first path, after the second is unstaged")
	c.must(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume")
}

func checkUnstageNothing(c *C) {
	v := c.at(c.base(), published)
	for range 2 {
		c.want(c.unstage(c.ctx, v, v.staging), "NodeUnstageVolume of what is not staged", codes.OK)
	}
	c.want(c.unstage(c.ctx, v, v.staging+".none"), "NodeUnstageVolume of a path that does not exist", codes.OK)
}

func checkUnstage(c *C) {
	v := c.at(c.at(c.base(), staged), published)
	c.wantMounted(v.staging, 0, "after NodeUnstageVolume")
}
