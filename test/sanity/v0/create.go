package sanityv0

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func createChecks() []Check {
	const section = "3, CreateVolume"
	return []Check{
		{Name: "create/answer-describes-the-volume", Section: section, needs: needVolumes, run: checkCreateAnswer},
		{Name: "create/repeat-gives-the-same-answer", Section: section, needs: needVolumes, run: checkCreateRepeat},
		{Name: "create/repeat-with-a-size-in-range-is-compatible", Section: section, needs: needVolumes, run: checkCreateInRange},
		{Name: "create/repeat-with-a-larger-size-already-exists", Section: section, needs: needVolumes, run: checkCreateLarger},
		{Name: "create/repeat-with-a-lower-limit-already-exists", Section: section, needs: needVolumes, run: checkCreateLower},
		{Name: "create/repeat-with-other-parameters-already-exists", Section: section, needs: needVolumes | needOtherParam, run: checkCreateOtherParameters},
		{Name: "create/repeat-with-the-other-access-type-is-refused", Section: section, needs: needVolumes, run: checkCreateOtherAccess},
		{Name: "create/repeat-for-several-nodes-already-exists", Section: section, needs: needVolumes | needMultiNode, run: checkCreateOtherMode},
		{Name: "create/refused-repeat-leaves-the-volume", Section: section, needs: needVolumes | needList, run: checkCreateUnchanged},
		{Name: "create/unknown-parameter-is-refused", Section: section, needs: needVolumes, run: checkCreateUnknownParameter},
		{Name: "create/keys-of-the-orchestrator-are-accepted", Section: "2, old clients", needs: needVolumes, run: checkCreateOrchestratorKeys},
		{Name: "create/unsupported-capability-is-refused", Section: section, needs: needVolumes, run: checkCreateUnsupported},
		{Name: "create/unsupported-among-supported-is-refused", Section: section, needs: needVolumes, run: checkCreateUnsupportedAmong},
		{Name: "create/both-access-types-are-honoured-or-refused", Section: section, needs: needVolumes, run: checkCreateMixed},
	}
}

func checkCreateAnswer(c *C) {
	v := c.base()
	if got, want := v.GetCapacityBytes(), v.request.GetCapacityRange().GetRequiredBytes(); got != 0 && got < want {
		c.Errorf("capacity_bytes is %d, below the required %d (0 would mean unknown)", got, want)
	}
	other := c.shared("plain")
	if other.GetId() == v.GetId() {
		c.Errorf("two names, one id: %q", v.GetId())
	}
}

func checkCreateRepeat(c *C) {
	v := c.base()
	for range 2 {
		got, err := c.repeat(v, nil)
		c.must(err, "CreateVolume again")
		c.wantEqual("CreateVolume again", v.Volume, got)
	}
}

// reported is the size of v, or what was asked for where it is unknown.
func reported(v *volume) int64 {
	return max(v.GetCapacityBytes(), v.request.GetCapacityRange().GetRequiredBytes())
}

func checkCreateInRange(c *C) {
	v := c.base()
	size := reported(v)
	for what, r := range inOrder(map[string]*csi.CapacityRange{
		"with half the size as required": {RequiredBytes: size / 2},
		"between half and double":        {RequiredBytes: size / 2, LimitBytes: 2 * size},
		"with the size itself as limit":  {RequiredBytes: v.request.GetCapacityRange().GetRequiredBytes(), LimitBytes: size},
		"with only a limit":              {LimitBytes: 2 * size},
	}) {
		got, err := c.repeat(v, func(m *csi.CreateVolumeRequest) { m.CapacityRange = r })
		if c.want(err, "CreateVolume again "+what, codes.OK) {
			c.wantEqual("CreateVolume again "+what, v.Volume, got)
		}
	}
}

func checkCreateLarger(c *C) {
	v := c.base()
	_, err := c.repeat(v, func(m *csi.CreateVolumeRequest) {
		m.CapacityRange = &csi.CapacityRange{RequiredBytes: 2 * reported(v)}
	})
	c.want(err, "CreateVolume again with double the size", codes.AlreadyExists)
}

func checkCreateLower(c *C) {
	v := c.base()
	if v.GetCapacityBytes() == 0 {
		c.Skipf("the plugin does not tell the size of a volume")
	}
	_, err := c.repeat(v, func(m *csi.CreateVolumeRequest) {
		m.CapacityRange = &csi.CapacityRange{LimitBytes: reported(v) / 2}
	})
	c.want(err, "CreateVolume again with half the size as limit", codes.AlreadyExists)
}

func checkCreateOtherParameters(c *C) {
	_, err := c.repeat(c.base(), func(m *csi.CreateVolumeRequest) { m.Parameters = c.o.OtherParameters })
	c.want(err, "CreateVolume again with other parameters", codes.AlreadyExists)
}

// checkCreateOtherAccess: a plugin that could never make such a volume may say
// so before it looks for the name.
func checkCreateOtherAccess(c *C) {
	_, err := c.repeat(c.base(), func(m *csi.CreateVolumeRequest) {
		m.VolumeCapabilities = []*csi.VolumeCapability{c.o.otherAccess()}
	})
	c.want(err, "CreateVolume again with the other access type", codes.AlreadyExists, codes.InvalidArgument)
}

func checkCreateOtherMode(c *C) {
	_, err := c.repeat(c.base(), func(m *csi.CreateVolumeRequest) {
		m.VolumeCapabilities = []*csi.VolumeCapability{c.o.capability(multiWriter)}
	})
	c.want(err, "CreateVolume of a single node's volume again, for several", codes.AlreadyExists)
}

// checkCreateUnchanged comes after the refusals above.
func checkCreateUnchanged(c *C) {
	v := c.base()
	for _, edit := range []func(*csi.CreateVolumeRequest){
		func(m *csi.CreateVolumeRequest) { m.CapacityRange = &csi.CapacityRange{RequiredBytes: 2 * reported(v)} },
		func(m *csi.CreateVolumeRequest) { m.VolumeCapabilities = nil },
	} {
		if _, err := c.repeat(v, edit); err == nil {
			c.Errorf("CreateVolume again with what does not fit: got OK")
		}
	}
	got, err := c.repeat(v, nil)
	c.must(err, "CreateVolume again")
	c.wantEqual("CreateVolume after refused repeats", v.Volume, got)
	if listed := c.listed(v.GetId()); listed == nil {
		c.Errorf("ListVolumes does not hold the volume after refused repeats")
	} else {
		c.wantEqual("ListVolumes, compared with CreateVolume", v.Volume, listed)
	}
}

func checkCreateUnknownParameter(c *C) {
	for what, topic := range inOrder(map[string]string{"of a new name": "unknown-parameter", "of an existing volume": "base"}) {
		r := c.createRequest(topic)
		if topic == "base" {
			r = proto.Clone(c.base().request).(*csi.CreateVolumeRequest)
		}
		if r.Parameters == nil {
			r.Parameters = map[string]string{}
		}
		r.Parameters["sanityUnknownKey"] = "value"
		_, err := c.controller.CreateVolume(c.ctx, r)
		c.want(err, "CreateVolume "+what+" with an unknown parameter", codes.InvalidArgument)
	}
}

// orchestratorKeys are what provisioners of Kubernetes leave in the parameters.
var orchestratorKeys = []string{
	"csiProvisionerSecretName", "csiProvisionerSecretNamespace",
	"csiControllerPublishSecretName", "csiControllerPublishSecretNamespace",
	"csiNodeStageSecretName", "csiNodeStageSecretNamespace",
	"csiNodePublishSecretName", "csiNodePublishSecretNamespace",
	"csi.storage.k8s.io/provisioner-secret-name", "csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/pv/name",
}

func checkCreateOrchestratorKeys(c *C) {
	v := c.base()
	got, err := c.repeat(v, func(m *csi.CreateVolumeRequest) {
		if m.Parameters == nil {
			m.Parameters = map[string]string{}
		}
		for _, k := range orchestratorKeys {
			m.Parameters[k] = "sanity"
		}
	})
	c.must(err, "CreateVolume again with the keys that a provisioner leaves in the parameters")
	c.wantEqual("CreateVolume again with the keys of a provisioner", v.Volume, got)
}

func checkCreateUnsupported(c *C) {
	var caps []*csi.VolumeCapability
	if cap := c.o.unsupported(); cap != nil {
		caps = append(caps, cap)
	}
	if !c.o.MultiNode {
		caps = append(caps, c.o.capability(multiWriter))
	}
	if c.o.RefusesOtherAccess {
		caps = append(caps, c.o.otherAccess())
	}
	if len(caps) == 0 {
		c.Skipf("the options name no capability that the plugin refuses")
	}
	for _, cap := range caps {
		_, err := c.controller.CreateVolume(c.ctx, with(c.createRequest("unsupported"), func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{cap}
		}))
		c.want(err, "CreateVolume with "+cap.String(), codes.InvalidArgument)
	}
}

func checkCreateUnsupportedAmong(c *C) {
	cap := c.o.unsupported()
	if cap == nil {
		c.Skipf("the options name no capability that the plugin refuses")
	}
	for what, list := range inOrder(map[string][]*csi.VolumeCapability{
		"after a good one":  {c.o.capability(singleWriter), cap},
		"before a good one": {cap, c.o.capability(singleWriter)},
	}) {
		_, err := c.controller.CreateVolume(c.ctx, with(c.createRequest("unsupported"), func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = list
		}))
		c.want(err, "CreateVolume with an unsupported capability "+what, codes.InvalidArgument)
	}
}

// checkCreateMixed: the volume must be usable in each of the ways asked for, so
// a plugin refuses or really supports both.
func checkCreateMixed(c *C) {
	both := []*csi.VolumeCapability{c.o.capability(singleWriter), c.o.otherAccess()}
	r := with(c.createRequest("mixed"), func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = both })
	resp, err := c.controller.CreateVolume(c.ctx, r)
	if !c.want(err, "CreateVolume for block and mount", codes.OK, codes.InvalidArgument) || err != nil {
		return
	}
	if c.o.RefusesOtherAccess {
		c.Errorf("CreateVolume for block and mount: got OK, though one of them is not supported")
	}
	v := &volume{Volume: resp.GetVolume(), request: r, level: created}
	ok, err := c.controller.ValidateVolumeCapabilities(c.ctx, c.validateRequest(v, both...))
	c.must(err, "ValidateVolumeCapabilities of a volume for block and mount")
	if !ok.GetSupported() {
		c.Errorf("a volume was made for block and mount, but does not support both: %s", ok.GetMessage())
	}
	_, err = c.controller.DeleteVolume(c.ctx, c.deleteRequest(v.GetId()))
	c.must(err, "DeleteVolume")
}
