package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func validateChecks() []Check {
	const section = "3, ValidateVolumeCapabilities"
	return []Check{
		{Name: "validate/capabilities-of-creation-are-supported", Section: section, needs: needVolumes, run: checkValidateSupported},
		{Name: "validate/unsupported-has-a-message", Section: section, needs: needVolumes, run: checkValidateUnsupported},
		{Name: "validate/one-unsupported-of-several-is-unsupported", Section: section, needs: needVolumes, run: checkValidateAmong},
		{Name: "validate/unknown-volume-is-not-found", Section: section, needs: needVolumes, run: checkValidateUnknown},
	}
}

func checkValidateSupported(c *C) {
	v := c.base()
	for what, caps := range inOrder(map[string][]*csi.VolumeCapability{
		"the first capability":  {c.o.capability(singleWriter)},
		"the second capability": {c.o.capability(singleReader)},
		"all capabilities":      v.request.GetVolumeCapabilities(),
	}) {
		resp, err := c.controller.ValidateVolumeCapabilities(c.ctx, c.validateRequest(v, caps...))
		if c.want(err, "ValidateVolumeCapabilities with "+what+" of creation", codes.OK) && !resp.GetSupported() {
			c.Errorf("%s of creation: not supported (%s)", what, resp.GetMessage())
		}
	}
}

func (c *C) wantUnsupported(what string, caps ...*csi.VolumeCapability) {
	resp, err := c.controller.ValidateVolumeCapabilities(c.ctx, c.validateRequest(c.base(), caps...))
	if !c.want(err, "ValidateVolumeCapabilities with "+what, codes.OK) {
		return
	}
	if resp.GetSupported() {
		c.Errorf("ValidateVolumeCapabilities with %s: supported", what)
	} else if resp.GetMessage() == "" {
		c.Errorf("ValidateVolumeCapabilities with %s: no message says why", what)
	}
}

func checkValidateUnsupported(c *C) {
	cap := c.o.unsupported()
	if cap == nil {
		c.Skipf("the options name no capability that the plugin refuses")
	}
	c.wantUnsupported("an unsupported capability", cap)
}

func checkValidateAmong(c *C) {
	cap := c.o.unsupported()
	if cap == nil {
		c.Skipf("the options name no capability that the plugin refuses")
	}
	c.wantUnsupported("an unsupported capability after a good one", c.o.capability(singleWriter), cap)
	c.wantUnsupported("an unsupported capability before a good one", cap, c.o.capability(singleWriter))
}

func checkValidateUnknown(c *C) {
	r := c.validateRequest(c.base(), c.o.capability(singleWriter))
	r.VolumeId = noVolume
	_, err := c.controller.ValidateVolumeCapabilities(c.ctx, r)
	c.want(err, "ValidateVolumeCapabilities of an unknown volume", codes.NotFound)
	// Attributes that no volume has do not make one.
	r.VolumeAttributes = map[string]string{"sanity": "sanity"}
	_, err = c.controller.ValidateVolumeCapabilities(c.ctx, r)
	c.want(err, "ValidateVolumeCapabilities of an unknown volume with attributes", codes.NotFound)
}
