package sanityv0

import (
	"bytes"
	"fmt"

	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func lifecycleChecks() []Check {
	const section = "3, NodeStageVolume to NodeUnpublishVolume"
	return []Check{
		{Name: "lifecycle/new-volume-is-empty", Section: section, needs: needNode | needData, run: checkNewIsEmpty},
		{Name: "lifecycle/data-survives-unpublish-and-publish", Section: section, needs: needNode | needData, run: checkDataRepublish},
		{Name: "lifecycle/data-survives-unstage-and-stage", Section: section, needs: needNode | needData, run: checkDataRestage},
		{Name: "lifecycle/data-survives-a-new-controller-publish", Section: section, needs: needNode | needData, run: checkDataReattach},
		{Name: "lifecycle/readonly-publish-takes-no-write", Section: section, needs: needNode | needData, run: checkReadonly},
		{Name: "lifecycle/answers-are-the-same-after-a-pause", Section: section, needs: needNode, run: checkPauses},
	}
}

// write uses the volume at path as a workload does, or ends the check.
func (c *C) write(path string, data []byte) {
	if err := c.o.Host.Write(path, c.o.Block, data); err != nil {
		c.Fatalf("write to the volume at %s: %v", path, err)
	}
}

func (c *C) wantData(path string, want []byte, when string) {
	got, err := c.o.Host.Read(path, c.o.Block, len(want))
	if err != nil {
		c.Errorf("read the volume at %s %s: %v", path, when, err)
		return
	}
	if !bytes.Equal(got, want) {
		c.Errorf("the volume at %s %s holds %.40q..., want %.40q...", path, when, got, want)
	}
}

// wantEmpty: nothing that a workload wrote, and on a block device nothing at all
// where a filesystem would have its marks.
func (c *C) wantEmpty(path string) {
	if !c.o.Block {
		if data, err := c.o.Host.Read(path, false, 1); err == nil {
			c.Errorf("the new volume at %s holds a file already: %q...", path, data)
		}
		return
	}
	const size = 1 << 20
	data, err := c.o.Host.Read(path, true, size)
	if err != nil {
		c.Fatalf("read the new volume at %s: %v", path, err)
	}
	if i := bytes.IndexFunc(data, func(r rune) bool { return r != 0 }); i >= 0 {
		c.Errorf("the new block volume at %s is not empty: it holds data at byte %d", path, i)
	}
}

// pattern is some data that is different for each round.
func (c *C) pattern(round string) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%s %s.", c.tag, round)), 200)
}

func checkNewIsEmpty(c *C) {
	v := c.at(c.shared("plain"), nodePublished)
	c.wantEmpty(v.target)
}

// survives writes to the shared volume, brings it down to a level and up again,
// and reads.
func (c *C) survives(round string, down level) {
	v := c.at(c.base(), nodePublished)
	data := c.pattern(round)
	c.write(v.target, data)
	c.at(v, down)
	c.at(v, nodePublished)
	c.wantData(v.target, data, "after "+round)
}

func checkDataRepublish(c *C) { c.survives("unpublish and publish", staged) }
func checkDataRestage(c *C)   { c.survives("unstage and stage", published) }
func checkDataReattach(c *C)  { c.survives("controller unpublish and publish", created) }

// checkReadonly publishes readonly on the node. A block volume is readonly for
// the controller, too: a readonly bind mount of a device node takes writes.
func checkReadonly(c *C) {
	v := c.at(c.base(), nodePublished)
	data := c.pattern("readonly")
	c.write(v.target, data)
	if c.o.Block {
		c.at(v, created)
		resp, err := c.controller.ControllerPublishVolume(c.ctx, with(c.publishRequest(v, c.nodeID), func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true }))
		c.must(err, "ControllerPublishVolume readonly")
		v.info, v.level = resp.GetPublishInfo(), published
	}
	c.at(v, staged)
	r := c.nodePublishRequest(v)
	r.Readonly = true
	c.makeDir(v.target)
	c.must(c.nodePublish(r), "NodePublishVolume readonly")
	if err := c.o.Host.Write(v.target, c.o.Block, c.pattern("refused")); err == nil {
		c.Errorf("a volume that is published readonly takes a write")
	}
	c.wantData(v.target, data, "published readonly")
	c.must(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume")
	if c.o.Block {
		c.at(v, created)
	}
}

// checkPauses goes through a life with a pause at each step, in which the plugin
// may be restarted, and repeats the step after it.
func checkPauses(c *C) {
	if c.o.Pause == nil {
		c.Skipf("needs a pause (option pause-command)")
	}
	v := c.at(c.base(), created)
	pause := func(point string) {
		if err := c.o.Pause(c.ctx, point); err != nil {
			c.Fatalf("pause at %q: %v", point, err)
		}
		c.awaitProbe()
	}

	pause(PauseCreated)
	got, err := c.repeat(v, nil)
	c.must(err, "CreateVolume after a pause")
	c.wantEqual("CreateVolume after a pause", v.Volume, got)

	c.at(v, published)
	pause(PausePublished)
	resp, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
	c.must(err, "ControllerPublishVolume after a pause")
	c.wantEqual("ControllerPublishVolume after a pause", &csi.ControllerPublishVolumeResponse{PublishInfo: v.info}, resp)
	c.wantPublished(v, c.nodeID, "after a pause")

	c.at(v, staged)
	lines := c.mounted(v.staging)
	pause(PauseStaged)
	c.want(c.stage(c.stageRequest(v)), "NodeStageVolume after a pause", codes.OK)
	c.wantMounted(v.staging, lines, "after a pause")

	c.at(v, nodePublished)
	data := c.pattern("pause")
	if c.o.Host.hasData() {
		c.write(v.target, data)
	}
	pause(PauseNodePublished)
	c.want(c.nodePublish(c.nodePublishRequest(v)), "NodePublishVolume after a pause", codes.OK)
	c.wantMounted(v.target, 1, "after a pause")
	c.refusedAgain(v, "with the other readonly after a pause", codes.AlreadyExists, func(r *csi.NodePublishVolumeRequest) { r.Readonly = true })
	if c.o.Host.hasData() {
		c.wantData(v.target, data, "after a pause")
	}

	c.at(v, staged)
	pause(PauseUnpublished)
	c.want(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume after a pause", codes.OK)
	c.at(v, created)
	c.wantMounted(v.staging, 0, "after the end of its life")
}

// awaitProbe waits until the plugin is healthy again at both endpoints.
func (c *C) awaitProbe() {
	for _, id := range []csi.IdentityClient{c.identity, c.controllerIdentity} {
		c.eventually("Probe after a pause", func() error {
			_, err := id.Probe(c.ctx, &csi.ProbeRequest{})
			return err
		})
	}
}
