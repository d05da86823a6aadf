package sanityv0

import (
	"context"
	"maps"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// level is how far a volume is on its way to a workload.
type level int

const (
	unknown level = iota // after a failed check
	created
	published
	staged
	nodePublished
)

// volume is one that several checks share, or one of a single check.
type volume struct {
	*csi.Volume
	request *csi.CreateVolumeRequest
	mode    csi.VolumeCapability_AccessMode_Mode
	level   level
	// info is what the last ControllerPublishVolume returned.
	info map[string]string
	// second is the target path beside target, for a second publish.
	staging, target, second string
}

// attributes are those of the volume as an orchestrator sends them.
func (v *volume) attributes() map[string]string {
	m := maps.Clone(v.GetAttributes())
	if m == nil {
		m = map[string]string{}
	}
	m[provisionerKey] = "sanity"
	return m
}

// base is the volume that most checks share: for one writer or one reader.
func (c *C) base() *volume { return c.shared("base", singleWriter, singleReader) }

// multi is the shared volume for several nodes.
func (c *C) multi() *volume { return c.shared("multi", multiWriter) }

// shared makes the volume of that topic when it is first asked for. What it is
// used with is the first of the modes.
func (c *C) shared(topic string, modes ...csi.VolumeCapability_AccessMode_Mode) *volume {
	return c.sharedFrom(topic, c.createRequest(topic, modes...))
}

func (c *C) sharedFrom(topic string, r *csi.CreateVolumeRequest) *volume {
	if v := c.volumes[topic]; v != nil {
		return v
	}
	v := c.create(topic, r)
	c.volumes[topic] = v
	return v
}

// create makes a volume or ends the check.
func (c *C) create(topic string, r *csi.CreateVolumeRequest) *volume {
	resp, err := c.controller.CreateVolume(c.ctx, r)
	c.must(err, "CreateVolume of the volume "+topic)
	if resp.GetVolume().GetId() == "" {
		c.Fatalf("CreateVolume of the volume %s: no id in the answer", topic)
	}
	v := &volume{
		Volume:  resp.GetVolume(),
		request: r,
		mode:    r.GetVolumeCapabilities()[0].GetAccessMode().GetMode(),
		level:   created,
		staging: filepath.Join(c.stagingRoot, topic+".g"),
		target:  filepath.Join(c.targetRoot, topic+".t1"),
		second:  filepath.Join(c.targetRoot, topic+".t2"),
	}
	c.paths = append(c.paths, v.staging, v.target, v.second)
	return v
}

// repeat sends the CreateVolume of v again, with an edit, and returns the volume
// that is answered.
func (c *C) repeat(v *volume, edit func(*csi.CreateVolumeRequest)) (*csi.Volume, error) {
	r := proto.Clone(v.request).(*csi.CreateVolumeRequest)
	if edit != nil {
		edit(r)
	}
	resp, err := c.controller.CreateVolume(c.ctx, r)
	return resp.GetVolume(), err
}

// at brings v to a level, up or down, or ends the check.
func (c *C) at(v *volume, want level) *volume {
	if v.level == unknown {
		c.reset(v)
	}
	for v.level < want {
		switch v.level {
		case created:
			resp, err := c.controller.ControllerPublishVolume(c.ctx, c.publishRequest(v, c.nodeID))
			c.must(err, "ControllerPublishVolume")
			v.info = resp.GetPublishInfo()
		case published:
			c.makeDir(v.staging)
			_, err := c.node.NodeStageVolume(c.ctx, c.stageRequest(v))
			c.must(err, "NodeStageVolume")
		case staged:
			c.makeDir(v.target)
			_, err := c.node.NodePublishVolume(c.ctx, c.nodePublishRequest(v))
			c.must(err, "NodePublishVolume")
		}
		v.level++
	}
	for v.level > want {
		switch v.level {
		case nodePublished:
			c.must(c.nodeUnpublish(c.ctx, v, v.target), "NodeUnpublishVolume")
		case staged:
			c.must(c.unstage(c.ctx, v, v.staging), "NodeUnstageVolume")
		case published:
			c.must(c.unpublish(c.ctx, v, c.nodeID), "ControllerUnpublishVolume")
		}
		v.level--
	}
	return v
}

// reset brings a volume of unknown state back to created.
func (c *C) reset(v *volume) {
	if c.offers.stage {
		for _, target := range []string{v.target, v.second} {
			c.must(c.nodeUnpublish(c.ctx, v, target), "NodeUnpublishVolume after a failed check")
		}
		c.must(c.unstage(c.ctx, v, v.staging), "NodeUnstageVolume after a failed check")
	}
	if c.offers.publish {
		for _, node := range []string{c.nodeID, c.o.OtherNodeID} {
			if node != "" {
				c.must(c.unpublish(c.ctx, v, node), "ControllerUnpublishVolume after a failed check")
			}
		}
	}
	v.level = created
}

// distrustVolumes says that the state of the shared volumes is not known any
// more. One that a check has lost is made again.
func (s *suite) distrustVolumes() {
	for topic, v := range s.volumes {
		resp, err := s.controller.CreateVolume(s.ctx, v.request)
		if err != nil {
			delete(s.volumes, topic)
			continue
		}
		v.Volume, v.level = resp.GetVolume(), unknown
	}
}

// remove takes v down and deletes it, or ends the check.
func (c *C) remove(v *volume) {
	c.at(v, created)
	_, err := c.controller.DeleteVolume(c.ctx, c.deleteRequest(v.GetId()))
	c.must(err, "DeleteVolume")
	for topic, other := range c.volumes {
		if other == v {
			delete(c.volumes, topic)
		}
	}
	for _, path := range []string{v.staging, v.target, v.second} {
		if err := c.o.Host.Remove(path); err != nil {
			c.Errorf("%v", err)
		}
	}
}

func (s *suite) unpublish(ctx context.Context, v *volume, node string) error {
	_, err := s.controller.ControllerUnpublishVolume(ctx, s.unpublishRequest(v.GetId(), node))
	return err
}

func (s *suite) unstage(ctx context.Context, v *volume, path string) error {
	_, err := s.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetId(), StagingTargetPath: path})
	return err
}

func (s *suite) nodeUnpublish(ctx context.Context, v *volume, path string) error {
	_, err := s.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetId(), TargetPath: path})
	return err
}

func (c *C) makeDir(path string) {
	if err := c.o.Host.MakeDir(path); err != nil {
		c.Fatalf("%v", err)
	}
}

// mounted counts the mount lines at path.
func (c *C) mounted(path string) int {
	n, err := c.o.Host.Mounted(path)
	if err != nil {
		c.Fatalf("count the mounts of %s: %v", path, err)
	}
	return n
}

func (c *C) wantMounted(path string, want int, when string) {
	if got := c.mounted(path); got != want {
		c.Errorf("%s has %d mount lines %s, want %d", path, got, when, want)
	}
}
