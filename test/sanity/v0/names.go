package sanityv0

import (
	"strings"

	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func nameChecks() []Check {
	return []Check{
		{Name: "names/long-names-that-differ-at-the-end-give-two-ids", Section: "3, size limits", needs: needVolumes, run: checkNamesLong},
		{Name: "names/names-that-differ-in-case-give-two-ids", Section: "3, CreateVolume", needs: needVolumes, run: checkNamesCase},
		{Name: "names/odd-names-are-accepted-or-refused", Section: "3, CreateVolume", needs: needVolumes, run: checkNamesOdd},
		{Name: "names/made-up-ids-are-unknown-to-the-controller", Section: "3, conflict settled", needs: needVolumes | needPublish, run: checkIDsController},
		{Name: "names/made-up-ids-are-deleted-with-ok", Section: "3, conflict settled", needs: needVolumes, run: checkIDsDelete},
		{Name: "names/made-up-ids-are-unknown-to-the-node", Section: "3, conflict settled", needs: needNode, run: checkIDsNode},
		{Name: "names/made-up-ids-are-unstaged-and-unpublished-with-ok", Section: "3, conflict settled", needs: needNode, run: checkIDsNodeUndo},
		{Name: "names/made-up-nodes-are-unknown", Section: "3, ControllerPublishVolume", needs: needVolumes | needPublish, run: checkNodeIDs},
		{Name: "names/made-up-ids-touch-no-volume", Section: "3, conflict settled", needs: needVolumes | needList, run: checkIDsHarmless},
	}
}

// distinct creates a volume for each name, expects them to be different ones,
// and deletes them. A name is refused only where mayRefuse says so.
func (c *C) distinct(names []string, mayRefuse bool) {
	names = append([]string(nil), names...)
	byID := map[string]string{}
	for _, name := range names {
		r := with(c.createRequest(""), func(r *csi.CreateVolumeRequest) { r.Name = name })
		resp, err := c.controller.CreateVolume(c.ctx, r)
		allowed := []codes.Code{codes.OK}
		if mayRefuse {
			allowed = append(allowed, codes.InvalidArgument)
		}
		if !c.want(err, "CreateVolume of "+shown(name), allowed...) || err != nil {
			continue
		}
		id := resp.GetVolume().GetId()
		if other, ok := byID[id]; ok {
			c.Errorf("the names %s and %s have one id: %q", shown(other), shown(name), id)
		}
		if len(id) > maxString {
			c.Errorf("the id of %s has %d bytes, more than %d", shown(name), len(id), maxString)
		}
		byID[id] = name
	}
	for id, name := range inOrder(byID) {
		_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(id))
		c.want(err, "DeleteVolume of "+shown(name), codes.OK)
	}
}

// shown is a name for a message.
func shown(name string) string {
	if len(name) > 60 {
		return strings.ToValidUTF8(name[:30]+"..."+name[len(name)-20:], "?")
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, "\""+name+"\"")
}

func checkNamesLong(c *C) {
	stem := c.name("long-")
	stem += strings.Repeat("n", maxString-1-len(stem))
	c.distinct([]string{stem + "a", stem + "b"}, false)
}

func checkNamesCase(c *C) {
	c.distinct([]string{c.name("case"), strings.ToUpper(c.name("case"))}, false)
}

// checkNamesOdd also sends a name above the limit for strings.
func checkNamesOdd(c *C) {
	tag := c.name("")
	c.distinct([]string{
		"-" + tag, "../" + tag, tag + "a b", tag + "a/b", tag + "a@b", tag + "a%2fb", tag + "a,b=c", tag + "ä", tag + "a\nb", tag + "a\x00b",
		tag + strings.Repeat("n", 300),
	}, true)
}

// madeUp are ids that no plugin gave, and near misses of one that it did give.
func madeUp(v *volume) []string {
	id := v.GetId()
	return []string{
		noVolume, ".", "..", "/", "../x", "/etc", "a@b", "%", "%2e%2e", ",", "-r", "a b", "a\x00b", "a\nb", strings.Repeat("i", 300),
		id + "@snap", id + " -r", id + "/", id + "/../x", "../" + id, "/" + id, id + "\x00", id + ",", "-" + id,
	}
}

func checkIDsDelete(c *C) {
	for _, id := range madeUp(c.base()) {
		_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(id))
		c.want(err, "DeleteVolume of the id "+shown(id), codes.OK)
	}
}

func checkIDsController(c *C) {
	v := c.at(c.base(), created)
	for _, id := range madeUp(v) {
		r := c.publishRequest(v, c.nodeID)
		r.VolumeId = id
		_, err := c.controller.ControllerPublishVolume(c.ctx, r)
		c.want(err, "ControllerPublishVolume of the id "+shown(id), codes.NotFound)
		_, err = c.controller.ControllerUnpublishVolume(c.ctx, c.unpublishRequest(id, c.nodeID))
		c.want(err, "ControllerUnpublishVolume of the id "+shown(id), codes.NotFound)
		m := c.validateRequest(v, c.o.capability(singleWriter))
		m.VolumeId = id
		_, err = c.controller.ValidateVolumeCapabilities(c.ctx, m)
		c.want(err, "ValidateVolumeCapabilities of the id "+shown(id), codes.NotFound)
	}
}

// checkIDsNode sends the publish info and the attributes of a real volume, which
// do not make up for a wrong id. At NodePublishVolume the empty staging path may
// be noticed first.
func checkIDsNode(c *C) {
	v := c.at(c.base(), published)
	c.makeDir(v.staging)
	c.makeDir(v.target)
	for _, id := range madeUp(v) {
		s := c.stageRequest(v)
		s.VolumeId = id
		_, err := c.node.NodeStageVolume(c.ctx, s)
		c.want(err, "NodeStageVolume of the id "+shown(id), codes.NotFound)
		p := c.nodePublishRequest(v)
		p.VolumeId = id
		_, err = c.node.NodePublishVolume(c.ctx, p)
		c.want(err, "NodePublishVolume of the id "+shown(id), codes.NotFound, codes.FailedPrecondition)
	}
	c.wantMounted(v.staging, 0, "after refused ids")
	c.wantMounted(v.target, 0, "after refused ids")
}

func checkIDsNodeUndo(c *C) {
	v := c.base()
	for _, id := range madeUp(v) {
		unknown := &volume{Volume: &csi.Volume{Id: id}}
		c.want(c.unstage(c.ctx, unknown, v.staging+".none"), "NodeUnstageVolume of the id "+shown(id), codes.OK)
		c.want(c.nodeUnpublish(c.ctx, unknown, v.second+".none"), "NodeUnpublishVolume of the id "+shown(id), codes.OK)
	}
}

func checkNodeIDs(c *C) {
	v := c.at(c.base(), created)
	for _, node := range []string{
		"sanity-no-such-node", "..", "../x", "@", "%", ",", "-r", "a b", "a\x00b", strings.Repeat("n", 300), c.nodeID + "/x", "-" + c.nodeID,
	} {
		_, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, node))
		c.want(err, "ControllerPublishVolume to the node "+shown(node), codes.NotFound)
		c.want(c.unpublish(c.ctx, v, node), "ControllerUnpublishVolume from the node "+shown(node), codes.NotFound)
	}
}

// checkIDsHarmless comes after the ids above, and sends the deletion again.
func checkIDsHarmless(c *C) {
	v := c.at(c.base(), created)
	before := c.allIDs()
	for _, id := range madeUp(v) {
		// Whether the answer is right is for the check before.
		_, _ = c.controller.DeleteVolume(c.ctx, c.deleteRequest(id))
	}
	c.wantSameIDs("after deletions of ids that are none", before, c.allIDs())
}
