package sanityv0

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Calls of these checks are sent as they are: an ABORTED is not repeated before
// it is judged. After them the plain repeat must find one consistent state.
func concurrencyChecks() []Check {
	const pending = "3, pending -> ABORTED"
	const again = "3, replays"
	return []Check{
		{Name: "concurrency/identical-creates-make-one-volume", Section: pending, needs: needVolumes, run: checkTogetherCreate},
		{Name: "concurrency/creates-and-deletes-end-consistent", Section: pending, needs: needVolumes | needList, run: checkTogetherDelete},
		{Name: "concurrency/identical-publishes-agree", Section: pending, needs: needVolumes | needPublish, run: checkTogetherPublish},
		{Name: "concurrency/publishes-and-unpublishes-end-consistent", Section: pending, needs: needVolumes | needPublish, run: checkTogetherUnpublish},
		{Name: "concurrency/two-nodes-race-and-one-wins", Section: pending, needs: needVolumes | needPublish | needOtherNode, run: checkTogetherNodes},
		{Name: "concurrency/identical-stages-stack-nothing", Section: pending, needs: needNode, run: checkTogetherStage},
		{Name: "concurrency/identical-node-publishes-stack-nothing", Section: pending, needs: needNode, run: checkTogetherNodePublish},
		{Name: "concurrency/identical-undoings-are-ok", Section: pending, needs: needNode, run: checkTogetherUndo},
		{Name: "deadline/create-and-delete-are-repeatable", Section: again, needs: needVolumes | needList, run: checkDeadlineCreate},
		{Name: "deadline/publish-and-unpublish-are-repeatable", Section: again, needs: needVolumes | needPublish, run: checkDeadlinePublish},
		{Name: "deadline/node-calls-are-repeatable", Section: again, needs: needNode, run: checkDeadlineNode},
	}
}

// together starts n calls at the same moment and returns their outcomes.
func together(ctx context.Context, n int, call func(ctx context.Context, i int) error) []error {
	errs := make([]error, n)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			errs[i] = call(once(ctx), i)
		})
	}
	close(begin)
	wg.Wait()
	return errs
}

// wantRace judges identical calls: each is done or told to wait, and at least
// one is done.
func (c *C) wantRace(what string, errs []error) {
	done := 0
	for _, err := range errs {
		if c.want(err, what+" at once", codes.OK, codes.Aborted) && err == nil {
			done++
		}
	}
	if done == 0 {
		c.Errorf("%s at once: none of %d was done", what, len(errs))
	}
}

// eventually repeats a call until it is OK.
func (c *C) eventually(what string, call func() error) {
	giveUp := time.Now().Add(c.o.RetryFor)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := call()
		if err == nil {
			return
		}
		if time.Now().After(giveUp) || !sleep(c.ctx, wait) {
			c.Fatalf("%s: still %s after %s", what, describe(err), c.o.RetryFor)
		}
	}
}

func checkTogetherCreate(c *C) {
	r := c.createRequest("together")
	volumes := make([]*csi.Volume, 8)
	c.wantRace("8 identical CreateVolume", together(c.ctx, len(volumes), func(ctx context.Context, i int) error {
		resp, err := c.controller.CreateVolume(ctx, r)
		volumes[i] = resp.GetVolume()
		return err
	}))
	v := c.sharedFrom("together", r)
	for _, other := range volumes {
		if other != nil {
			c.wantEqual("CreateVolume after 8 at once, compared with one of them", other, v.Volume)
		}
	}
	c.remove(v)
}

func checkTogetherDelete(c *C) {
	before := c.allIDs()
	v := c.shared("together")
	for i, err := range together(c.ctx, 8, func(ctx context.Context, i int) error {
		if i%2 == 0 {
			_, err := c.controller.DeleteVolume(ctx, c.deleteRequest(v.GetId()))
			return err
		}
		_, err := c.controller.CreateVolume(ctx, v.request)
		return err
	}) {
		c.want(err, []string{"DeleteVolume", "CreateVolume"}[i%2]+" among both at once", codes.OK, codes.Aborted)
	}
	got, err := c.repeat(v, nil)
	c.must(err, "CreateVolume after creations and deletions at once")
	v.Volume = got
	if c.listed(got.GetId()) == nil {
		c.Errorf("ListVolumes does not hold the volume after creations and deletions at once")
	}
	c.remove(v)
	c.wantSameIDs("after creations and deletions at once", before, c.allIDs())
}

func checkTogetherPublish(c *C) {
	v := c.at(c.base(), created)
	infos := make([]*csi.ControllerPublishVolumeResponse, 4)
	c.wantRace("identical ControllerPublishVolume", together(c.ctx, len(infos), func(ctx context.Context, i int) (err error) {
		infos[i], err = c.controller.ControllerPublishVolume(ctx, c.publishRequest(v, c.nodeID))
		return err
	}))
	c.at(v, published)
	for _, other := range infos {
		if other != nil {
			c.wantEqual("ControllerPublishVolume after 4 at once, compared with one of them", other, &csi.ControllerPublishVolumeResponse{PublishInfo: v.info})
		}
	}
	c.wantPublished(v, c.nodeID, "after publishes at once")
}

func checkTogetherUnpublish(c *C) {
	v := c.at(c.base(), created)
	for i, err := range together(c.ctx, 6, func(ctx context.Context, i int) error {
		if i%2 == 0 {
			_, err := c.controller.ControllerPublishVolume(ctx, c.publishRequest(v, c.nodeID))
			return err
		}
		return c.unpublish(ctx, v, c.nodeID)
	}) {
		c.want(err, []string{"ControllerPublishVolume", "ControllerUnpublishVolume"}[i%2]+" among both at once", codes.OK, codes.Aborted)
	}
	// Whatever came last: each of the two repeats brings its own state about.
	c.at(v, published)
	c.wantPublished(v, c.nodeID, "after publishes and unpublishes at once")
	c.at(v, created)
	c.wantClosed(v, c.nodeID, "after publishes and unpublishes at once")
}

func checkTogetherNodes(c *C) {
	v := c.at(c.base(), created)
	nodes := []string{c.nodeID, c.o.OtherNodeID}
	done := 0
	for _, err := range together(c.ctx, 8, func(ctx context.Context, i int) error {
		_, err := c.controller.ControllerPublishVolume(ctx, c.publishRequest(v, nodes[i%2]))
		return err
	}) {
		c.want(err, "ControllerPublishVolume to two nodes at once", codes.OK, codes.FailedPrecondition, codes.Aborted)
	}
	for _, node := range nodes {
		_, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, node))
		if c.want(err, "ControllerPublishVolume to a node after the race of two", codes.OK, codes.FailedPrecondition) && err == nil {
			done++
		}
	}
	if done != 1 {
		c.Errorf("after a race of two nodes %d of them have the volume, want 1", done)
	}
	for _, node := range nodes {
		c.must(c.unpublish(c.ctx, v, node), "ControllerUnpublishVolume")
	}
}

func checkTogetherStage(c *C) {
	v := c.at(c.base(), published)
	c.makeDir(v.staging)
	c.wantRace("identical NodeStageVolume", together(c.ctx, 4, func(ctx context.Context, _ int) error {
		_, err := c.node.NodeStageVolume(ctx, c.stageRequest(v))
		return err
	}))
	c.at(v, staged)
	if n := c.mounted(v.staging); n > 1 {
		c.Errorf("%s has %d mount lines after stages at once", v.staging, n)
	}
}

func checkTogetherNodePublish(c *C) {
	v := c.at(c.base(), staged)
	c.makeDir(v.target)
	c.wantRace("identical NodePublishVolume", together(c.ctx, 4, func(ctx context.Context, _ int) error {
		_, err := c.node.NodePublishVolume(ctx, c.nodePublishRequest(v))
		return err
	}))
	c.at(v, nodePublished)
	c.wantMounted(v.target, 1, "after publishes at once")
}

func checkTogetherUndo(c *C) {
	v := c.at(c.base(), nodePublished)
	c.wantRace("identical NodeUnpublishVolume", together(c.ctx, 4, func(ctx context.Context, _ int) error { return c.nodeUnpublish(ctx, v, v.target) }))
	c.at(v, staged)
	c.wantMounted(v.target, 0, "after unpublishes at once")
	c.wantRace("identical NodeUnstageVolume", together(c.ctx, 4, func(ctx context.Context, _ int) error { return c.unstage(ctx, v, v.staging) }))
	c.at(v, published)
	c.wantMounted(v.staging, 0, "after unstages at once")
	c.wantRace("identical ControllerUnpublishVolume", together(c.ctx, 4, func(ctx context.Context, _ int) error { return c.unpublish(ctx, v, c.nodeID) }))
	c.at(v, created)
}

// hurried sends a call with deadlines that it will hardly meet. What was begun
// may be going on when the next one comes, and then has the volume's lock. What
// was not yet begun must not begin later: after a repeat and a deletion, such a
// straggler would bring the volume back.
func (c *C) hurried(what string, call func(ctx context.Context) error) {
	for _, d := range c.o.Deadlines {
		ctx, cancel := context.WithTimeout(once(c.ctx), d)
		err := call(ctx)
		cancel()
		c.want(err, what+" with a deadline of "+d.String(), codes.OK, codes.DeadlineExceeded, codes.Aborted)
	}
}

func checkDeadlineCreate(c *C) {
	before := c.allIDs()
	r := c.createRequest("deadline")
	c.hurried("CreateVolume", func(ctx context.Context) error {
		_, err := c.controller.CreateVolume(ctx, r)
		return err
	})
	v := c.sharedFrom("deadline", r)
	got, err := c.repeat(v, nil)
	c.must(err, "CreateVolume again")
	c.wantEqual("CreateVolume again after hurried ones", v.Volume, got)
	if n := len(c.allIDs()); n != len(before)+1 {
		c.Errorf("ListVolumes holds %d volumes after hurried creations of one, want %d", n, len(before)+1)
	}
	c.hurried("DeleteVolume", func(ctx context.Context) error {
		_, err := c.controller.DeleteVolume(ctx, c.deleteRequest(v.GetId()))
		return err
	})
	c.remove(v)
	c.wantSameIDs("after hurried deletions", before, c.allIDs())
}

func checkDeadlinePublish(c *C) {
	v := c.at(c.base(), created)
	c.hurried("ControllerPublishVolume", func(ctx context.Context) error {
		_, err := c.controller.ControllerPublishVolume(ctx, c.publishRequest(v, c.nodeID))
		return err
	})
	c.at(v, published)
	resp, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
	c.must(err, "ControllerPublishVolume again")
	c.wantEqual("ControllerPublishVolume again after hurried ones", &csi.ControllerPublishVolumeResponse{PublishInfo: v.info}, resp)
	c.wantPublished(v, c.nodeID, "after hurried publishes")
	c.hurried("ControllerUnpublishVolume", func(ctx context.Context) error { return c.unpublish(ctx, v, c.nodeID) })
	c.at(v, created)
	c.wantClosed(v, c.nodeID, "after hurried unpublishes")
}

func checkDeadlineNode(c *C) {
	v := c.at(c.base(), published)
	c.makeDir(v.staging)
	c.hurried("NodeStageVolume", func(ctx context.Context) error {
		_, err := c.node.NodeStageVolume(ctx, c.stageRequest(v))
		return err
	})
	c.at(v, staged)
	c.makeDir(v.target)
	c.hurried("NodePublishVolume", func(ctx context.Context) error {
		_, err := c.node.NodePublishVolume(ctx, c.nodePublishRequest(v))
		return err
	})
	c.at(v, nodePublished)
	c.wantMounted(v.target, 1, "after hurried publishes")
	c.hurried("NodeUnpublishVolume", func(ctx context.Context) error { return c.nodeUnpublish(ctx, v, v.target) })
	c.at(v, staged)
	c.wantMounted(v.target, 0, "after hurried unpublishes")
	c.hurried("NodeUnstageVolume", func(ctx context.Context) error { return c.unstage(ctx, v, v.staging) })
	c.at(v, published)
	c.wantMounted(v.staging, 0, "after hurried unstages")
	c.at(v, created)
}
