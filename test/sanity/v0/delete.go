package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func deleteChecks() []Check {
	const section = "3, DeleteVolume"
	return []Check{
		{Name: "delete/repeat-is-ok", Section: section, needs: needVolumes, run: checkDeleteRepeat},
		{Name: "delete/deleted-volume-is-unknown", Section: section, needs: needVolumes | needPublish, run: checkDeleteGone},
		{Name: "delete/deleted-volume-is-not-listed", Section: section, needs: needVolumes | needList, run: checkDeleteListed},
		{Name: "delete/name-is-free-again", Section: section, needs: needVolumes, run: checkDeleteName},
		{Name: "delete/new-volume-of-an-old-name-is-empty", Section: section, needs: needNode | needData, run: checkDeleteData},
	}
}

func checkDeleteRepeat(c *C) {
	v := c.shared("plain")
	c.remove(v)
	for range 2 {
		_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(v.GetId()))
		c.want(err, "DeleteVolume of a deleted volume", codes.OK)
	}
}

func checkDeleteGone(c *C) {
	v := c.shared("odd")
	c.remove(v)
	_, err := c.controller.ValidateVolumeCapabilities(c.ctx, c.validateRequest(v, c.o.capability(singleWriter)))
	c.want(err, "ValidateVolumeCapabilities of a deleted volume", codes.NotFound)
	_, err = c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
	c.want(err, "ControllerPublishVolume of a deleted volume", codes.NotFound)
	c.want(c.unpublish(c.ctx, v, c.nodeID), "ControllerUnpublishVolume of a deleted volume", codes.NotFound)
	c.want(c.unpublish(c.ctx, v, ""), "ControllerUnpublishVolume of a deleted volume from all nodes", codes.NotFound)
}

func checkDeleteListed(c *C) {
	v := c.shared("limited")
	c.remove(v)
	if c.listed(v.GetId()) != nil {
		c.Errorf("ListVolumes holds %q after DeleteVolume", v.GetId())
	}
}

// checkDeleteName takes the name for a volume that the old one would not fit.
func checkDeleteName(c *C) {
	old := c.shared("renewed")
	c.remove(old)
	v := c.sharedFrom("renewed", with(c.createRequest("renewed"), func(r *csi.CreateVolumeRequest) {
		r.CapacityRange.RequiredBytes = 2*reported(old) + 1
	}))
	if got := v.GetCapacityBytes(); got != 0 && got <= 2*reported(old) {
		c.Errorf("the new volume of an old name has %d bytes, want more than %d", got, 2*reported(old))
	}
	c.remove(v)
}

func checkDeleteData(c *C) {
	v := c.at(c.shared("renewed"), nodePublished)
	c.write(v.target, c.pattern("before the deletion"))
	c.remove(v)
	v = c.at(c.shared("renewed"), nodePublished)
	c.wantEmpty(v.target)
	c.remove(v)
}
