package sanityv0

import (
	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func capacityChecks() []Check {
	const section = "3, GetCapacity"
	return []Check{
		{Name: "capacity/is-never-negative", Section: section, needs: needCapacity, run: checkCapacity},
		{Name: "capacity/unknown-parameter-has-none", Section: section, needs: needCapacity, run: checkCapacityUnknown},
		{Name: "capacity/unsupported-capability-has-none", Section: section, needs: needCapacity, run: checkCapacityUnsupported},
	}
}

func checkCapacity(c *C) {
	caps := []*csi.VolumeCapability{c.o.capability(singleWriter)}
	for what, r := range inOrder(map[string]*csi.GetCapacityRequest{
		"of everything":            {},
		"for parameters":           {Parameters: c.o.Parameters},
		"for capabilities":         {VolumeCapabilities: caps},
		"for both of creation":     {VolumeCapabilities: caps, Parameters: c.o.Parameters},
		"for other parameters":     {Parameters: c.o.OtherParameters},
		"for two capabilities":     {VolumeCapabilities: append(caps, c.o.capability(singleReader)), Parameters: c.o.Parameters},
		"with a provisioner's key": {Parameters: map[string]string{"csiProvisionerSecretName": "sanity"}},
	}) {
		resp, err := c.controller.GetCapacity(c.ctx, r)
		if c.want(err, "GetCapacity "+what, codes.OK) && resp.GetAvailableCapacity() < 0 {
			c.Errorf("GetCapacity %s: %d", what, resp.GetAvailableCapacity())
		}
	}
}

// wantNone: nothing can be made of it, so the capacity is zero, or the request
// is refused as CreateVolume would.
func (c *C) wantNone(what string, r *csi.GetCapacityRequest) {
	resp, err := c.controller.GetCapacity(c.ctx, r)
	if c.want(err, "GetCapacity "+what, codes.OK, codes.InvalidArgument) && resp.GetAvailableCapacity() != 0 {
		c.Errorf("GetCapacity %s: %d bytes, though no volume can be made", what, resp.GetAvailableCapacity())
	}
}

func checkCapacityUnknown(c *C) {
	c.wantNone("with an unknown parameter", &csi.GetCapacityRequest{Parameters: map[string]string{"sanityUnknownKey": "value"}})
}

func checkCapacityUnsupported(c *C) {
	cap := c.o.unsupported()
	if cap == nil {
		c.Skipf("the options name no capability that the plugin refuses")
	}
	c.wantNone("with an unsupported capability", &csi.GetCapacityRequest{
		VolumeCapabilities: []*csi.VolumeCapability{c.o.capability(singleWriter), cap},
		Parameters:         c.o.Parameters,
	})
}
