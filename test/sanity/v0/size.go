package sanityv0

import (
	"math"

	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func sizeChecks() []Check {
	const section = "3, CreateVolume (capacity_range)"
	return []Check{
		{Name: "size/negative-is-refused", Section: section, needs: needVolumes, run: checkSizeNegative},
		{Name: "size/limit-below-required-is-refused", Section: section, needs: needVolumes, run: checkSizeLimitBelow},
		{Name: "size/impossible-is-out-of-range", Section: section, needs: needVolumes, run: checkSizeImpossible},
		{Name: "size/odd-size-is-rounded-up", Section: section, needs: needVolumes, run: checkSizeOdd},
		{Name: "size/exact-size-is-met-or-out-of-range", Section: section, needs: needVolumes, run: checkSizeExact},
		{Name: "size/limit-alone-is-kept", Section: section, needs: needVolumes, run: checkSizeLimitOnly},
		{Name: "size/no-range-gives-a-default", Section: section, needs: needVolumes, run: checkSizeDefault},
		{Name: "size/refused-size-leaves-nothing", Section: section, needs: needVolumes | needList, run: checkSizeNothingLeft},
	}
}

func (c *C) createSized(topic string, r *csi.CapacityRange) (*csi.Volume, error) {
	resp, err := c.controller.CreateVolume(c.ctx, with(c.createRequest(topic), func(m *csi.CreateVolumeRequest) { m.CapacityRange = r }))
	return resp.GetVolume(), err
}

func checkSizeNegative(c *C) {
	for what, r := range inOrder(map[string]*csi.CapacityRange{
		"required_bytes":              {RequiredBytes: -1},
		"limit_bytes":                 {LimitBytes: -1},
		"limit_bytes beside required": {RequiredBytes: c.o.VolumeSize, LimitBytes: -1},
	}) {
		_, err := c.createSized("negative", r)
		c.want(err, "CreateVolume with negative "+what, codes.InvalidArgument, codes.OutOfRange)
	}
}

func checkSizeLimitBelow(c *C) {
	_, err := c.createSized("limit-below", &csi.CapacityRange{RequiredBytes: 2 * c.o.VolumeSize, LimitBytes: c.o.VolumeSize})
	c.want(err, "CreateVolume with a limit below the required size", codes.InvalidArgument, codes.OutOfRange)
}

// checkSizeImpossible asks for the largest number there is, which no rounding
// may overflow.
func checkSizeImpossible(c *C) {
	_, err := c.createSized("impossible", &csi.CapacityRange{RequiredBytes: math.MaxInt64})
	c.want(err, "CreateVolume with 2^63-1 bytes", codes.OutOfRange)
}

func checkSizeOdd(c *C) {
	v := c.sharedFrom("odd", with(c.createRequest("odd"), func(m *csi.CreateVolumeRequest) {
		m.CapacityRange = &csi.CapacityRange{RequiredBytes: c.o.VolumeSize + 1}
	}))
	if got := v.GetCapacityBytes(); got != 0 && got < c.o.VolumeSize+1 {
		c.Errorf("capacity_bytes is %d, below the required %d", got, c.o.VolumeSize+1)
	}
	again, err := c.repeat(v, nil)
	c.must(err, "CreateVolume of an odd size again")
	c.wantEqual("CreateVolume of an odd size again", v.Volume, again)
}

func checkSizeExact(c *C) {
	size := c.o.VolumeSize + 1
	v, err := c.createSized("exact", &csi.CapacityRange{RequiredBytes: size, LimitBytes: size})
	if !c.want(err, "CreateVolume of an odd size that is also the limit", codes.OK, codes.OutOfRange) || err != nil {
		return
	}
	if got := v.GetCapacityBytes(); got != 0 && got != size {
		c.Errorf("capacity_bytes is %d, required and limit are %d", got, size)
	}
	_, err = c.controller.DeleteVolume(c.ctx, c.deleteRequest(v.GetId()))
	c.must(err, "DeleteVolume")
}

func checkSizeLimitOnly(c *C) {
	v := c.sharedFrom("limited", with(c.createRequest("limited"), func(m *csi.CreateVolumeRequest) {
		m.CapacityRange = &csi.CapacityRange{LimitBytes: c.o.VolumeSize}
	}))
	if got := v.GetCapacityBytes(); got > c.o.VolumeSize {
		c.Errorf("capacity_bytes is %d, above the limit %d", got, c.o.VolumeSize)
	}
}

func checkSizeDefault(c *C) {
	v := c.sharedFrom("default", with(c.createRequest("default"), func(m *csi.CreateVolumeRequest) { m.CapacityRange = nil }))
	if got := v.GetCapacityBytes(); got < 0 {
		c.Errorf("capacity_bytes is %d", got)
	}
	again, err := c.repeat(v, nil)
	c.must(err, "CreateVolume without a range again")
	c.wantEqual("CreateVolume without a range again", v.Volume, again)
}

func checkSizeNothingLeft(c *C) {
	before := c.allIDs()
	for _, r := range []*csi.CapacityRange{
		{RequiredBytes: -1},
		{RequiredBytes: 2 * c.o.VolumeSize, LimitBytes: c.o.VolumeSize},
		{RequiredBytes: math.MaxInt64},
	} {
		if _, err := c.createSized("nothing-left", r); err == nil {
			c.Errorf("CreateVolume with %v: got OK", r)
		}
	}
	c.wantSameIDs("after refused sizes", before, c.allIDs())
}
