package node

import (
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// StageRequest asks for a volume to be ready at a staging path.
type StageRequest struct {
	VolumeID, StagingPath string
	Capability            access.Capability
	// PublishContext is what ControllerPublishVolume returned.
	PublishContext map[string]string
	// VolumeContext holds the volume's attributes.
	VolumeContext map[string]string
	Secrets       map[string]string
}

// PublishRequest asks for a staged volume to be visible at a target path.
type PublishRequest struct {
	VolumeID, StagingPath, TargetPath      string
	Capability                             access.Capability
	ReadOnly                               bool
	PublishContext, VolumeContext, Secrets map[string]string
}

// The volume attributes that a node reads. Others are ignored: orchestrators
// add their own.
const (
	attributeProtocol     = "protocol"
	attributeFSType       = "fsType"
	attributeMountOptions = "mountOptions"
	attributeEphemeral    = "csi.storage.k8s.io/ephemeral"
)

// maxPath is PATH_MAX without its terminating zero.
const maxPath = 4095

// CheckPath refuses a path that is not a clean absolute one; what names it.
func CheckPath(what, path string) error {
	switch {
	case path == "":
		return fault.New(fault.Invalid, "the %s is missing", what)
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" ||
		len(path) > maxPath || strings.ContainsRune(path, 0):
		return fault.New(fault.Invalid, "%s %q is not a clean absolute path", what, ident.Printable(path))
	}
	return nil
}

func checkCapability(c access.Capability) error {
	switch {
	case c.Type != access.Mount && c.Type != access.Block:
		return fault.New(fault.Invalid, "the volume capability has no access type: set block or mount")
	case !c.Mode.Known():
		return fault.New(fault.Invalid, "the volume capability has no known access mode (%s)", c.Mode)
	}
	return nil
}

func (r *StageRequest) check() error {
	if _, err := ident.ParseVolumeID(r.VolumeID); err != nil {
		return err
	}
	if err := CheckPath("staging path", r.StagingPath); err != nil {
		return err
	}
	return checkCapability(r.Capability)
}

func (r *PublishRequest) check() error {
	// The id of such a volume is the orchestrator's own, and none of ours.
	if r.StagingPath == "" && r.VolumeContext[attributeEphemeral] == "true" {
		return fault.New(fault.Invalid, "ephemeral volumes are not served: use a claim")
	}
	if _, err := ident.ParseVolumeID(r.VolumeID); err != nil {
		return err
	}
	if err := CheckPath("target path", r.TargetPath); err != nil {
		return err
	}
	if err := checkCapability(r.Capability); err != nil {
		return err
	}
	if r.StagingPath == "" {
		return fault.New(fault.Precondition, "the staging path is missing: stage the volume, and name its staging path")
	}
	if err := CheckPath("staging path", r.StagingPath); err != nil {
		return err
	}
	if r.StagingPath == r.TargetPath {
		return fault.New(fault.Invalid, "staging path and target path are the same")
	}
	return nil
}
