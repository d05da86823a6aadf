package sanityv0

import (
	"maps"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// provisionerKey is what the provisioners of that time add to the attributes of
// a volume and send back with them.
const provisionerKey = "storage.kubernetes.io/csiProvisionerIdentity"

// createRequest asks for a volume of the usual size and parameters. The name is
// the topic with this run's tag; without modes it is for a single writer.
func (s *suite) createRequest(name string, modes ...csi.VolumeCapability_AccessMode_Mode) *csi.CreateVolumeRequest {
	if len(modes) == 0 {
		modes = append(modes, singleWriter)
	}
	r := &csi.CreateVolumeRequest{
		Name:                    s.name(name),
		CapacityRange:           &csi.CapacityRange{RequiredBytes: s.o.VolumeSize},
		Parameters:              maps.Clone(s.o.Parameters),
		ControllerCreateSecrets: s.o.Secrets.CreateVolume,
	}
	for _, m := range modes {
		r.VolumeCapabilities = append(r.VolumeCapabilities, s.o.capability(m))
	}
	return r
}

func (s *suite) name(topic string) string { return "sanity-" + s.tag + "-" + topic }

func (s *suite) deleteRequest(id string) *csi.DeleteVolumeRequest {
	return &csi.DeleteVolumeRequest{VolumeId: id, ControllerDeleteSecrets: s.o.Secrets.DeleteVolume}
}

// publishRequest asks to open v for writing to a node.
func (s *suite) publishRequest(v *volume, node string) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{
		VolumeId:                 v.GetId(),
		NodeId:                   node,
		VolumeCapability:         s.o.capability(v.mode),
		ControllerPublishSecrets: s.o.Secrets.ControllerPublishVolume,
		VolumeAttributes:         v.attributes(),
	}
}

func (s *suite) unpublishRequest(id, node string) *csi.ControllerUnpublishVolumeRequest {
	return &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node, ControllerUnpublishSecrets: s.o.Secrets.ControllerUnpublishVolume}
}

func (s *suite) validateRequest(v *volume, caps ...*csi.VolumeCapability) *csi.ValidateVolumeCapabilitiesRequest {
	return &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.GetId(), VolumeCapabilities: caps, VolumeAttributes: v.attributes()}
}

func (s *suite) stageRequest(v *volume) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId:          v.GetId(),
		PublishInfo:       v.info,
		StagingTargetPath: v.staging,
		VolumeCapability:  s.o.capability(v.mode),
		NodeStageSecrets:  s.o.Secrets.NodeStageVolume,
		VolumeAttributes:  v.attributes(),
	}
}

// nodePublishRequest asks to publish v for writing at its first target path.
func (s *suite) nodePublishRequest(v *volume) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId:           v.GetId(),
		PublishInfo:        v.info,
		StagingTargetPath:  v.staging,
		TargetPath:         v.target,
		VolumeCapability:   s.o.capability(v.mode),
		NodePublishSecrets: s.o.Secrets.NodePublishVolume,
		VolumeAttributes:   v.attributes(),
	}
}

// with returns m after edit, for requests that differ from the usual in a word.
func with[M any](m M, edit func(M)) M {
	edit(m)
	return m
}
