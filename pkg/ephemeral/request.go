package ephemeral

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Request asks for a pod's own volume at a target path.
type Request struct {
	// Handle is the orchestrator's own id of the volume.
	Handle, TargetPath string
	Capability         access.Capability
	ReadOnly           bool
	// VolumeContext holds what the pod's author gave, and what the kubelet adds of
	// the pod.
	VolumeContext map[string]string
}

// Asked reports whether a publish is of such a volume: nothing was staged, and the
// kubelet says so. It alone does, since it writes over what a pod's author gives.
func Asked(stagingPath string, volumeContext map[string]string) bool {
	return stagingPath == "" && volumeContext[volume.ParamEphemeral] == "true"
}

// orchestrators is how the keys begin that the orchestrator adds.
const orchestrators = "csi.storage.k8s.io/"

const (
	attributeSize     = "size"
	attributeProtocol = "protocol"
)

// attributes is what a pod's author may say besides the size and the protocol, and
// which values. All of it is about the inside of the author's own volume; what
// costs others is not among it: the pool, copies and dedup (space and memory of the
// whole pool), strong compression and checksums (the storage host's processors),
// blocks so small that what they need besides exceeds the volume's size, and mount
// options and export settings. docs/parameters.md says the same to people.
var attributes = map[string]*regexp.Regexp{
	"fsType":           exactly(`ext4|ext3|xfs`),
	"uid":              exactly(`[0-9]{1,10}`),
	"gid":              exactly(`[0-9]{1,10}`),
	"mode":             exactly(`0?[0-7]{3}`),
	"zfs.compression":  exactly(`on|off|lz4|zle`),
	"zfs.recordsize":   exactly(`(4|8|16|32|64|128|256|512)[Kk]|1[Mm]`),
	"zfs.volblocksize": exactly(`(8|16|32|64|128)[Kk]`),
	"zfs.atime":        exactly(`on|off`),
	"zfs.xattr":        exactly(`on|off|sa|dir`),
	"zfs.acltype":      exactly(`off|noacl|posix|posixacl`),
	"zfs.sync":         exactly(`standard|disabled`),
}

func exactly(values string) *regexp.Regexp { return regexp.MustCompile(`^(` + values + `)$`) }

// KnownAttributes returns the names of what a pod's author may say, sorted.
func KnownAttributes() []string {
	return slices.Sorted(maps.Keys(merged(attributes, map[string]*regexp.Regexp{attributeSize: nil, attributeProtocol: nil})))
}

func merged[V any](a, b map[string]V) map[string]V {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

func (r *Request) check() error {
	if !handlePattern.MatchString(r.Handle) {
		return fault.New(fault.Invalid, "%q cannot be the id of an ephemeral volume: it has letters, digits, '.', '_' and '-', at most 100", ident.Printable(r.Handle))
	}
	if err := node.CheckPath("target path", r.TargetPath); err != nil {
		return err
	}
	return checkCapability(r.Capability)
}

// author is what the pod's author gave.
func (r *Request) author() map[string]string {
	given := map[string]string{}
	for key, value := range r.VolumeContext {
		if !strings.HasPrefix(key, orchestrators) {
			given[key] = value
		}
	}
	return given
}

// pod is what the kubelet says of the pod, for people.
func (r *Request) pod() map[string]string {
	m := map[string]string{volume.ParamEphemeral: "true"}
	for _, key := range []string{volume.ParamPodName, volume.ParamPodNamespace} {
		m[key] = r.VolumeContext[key]
	}
	return m
}

// newRecord is the record of a volume that is not begun yet, or why the node's
// configuration does not allow it.
func (s *Service) newRecord(r *Request) (*record, error) {
	if s.Pool == "" {
		return nil, fault.New(fault.Precondition, "ephemeral volumes are not served on this node: use a claim, or set ephemeral.pool in the node's configuration")
	}
	rec := &record{
		Handle: r.Handle, VolumeID: s.volumeID(r.Handle), TargetPath: r.TargetPath, NodeID: s.Node.ID(),
		Pod:        ident.Printable(r.VolumeContext[volume.ParamPodNamespace] + "/" + r.VolumeContext[volume.ParamPodName]),
		Attributes: r.author(), Parameters: map[string]string{"pool": s.Pool},
		Bytes: s.DefaultBytes, LimitBytes: s.MaxBytes, State: begun,
	}
	protocol := s.Protocols[0]
	for _, key := range slices.Sorted(maps.Keys(rec.Attributes)) {
		value := rec.Attributes[key]
		switch rule := attributes[key]; {
		case key == attributeProtocol:
			if protocol = value; !slices.Contains(s.Protocols, protocol) {
				return nil, refused(key, value, strings.Join(s.Protocols, " or "))
			}
		case key == attributeSize:
			var ok bool
			if rec.Bytes, ok = parseBytes(value); !ok {
				return nil, refused(key, value, "a number of bytes such as 1073741824, 512Mi or 1Gi")
			}
			if rec.Bytes > s.MaxBytes {
				return nil, fault.New(fault.Invalid, "volumeAttributes: size is %d bytes, and an ephemeral volume may have %d at most: use a claim for more", rec.Bytes, s.MaxBytes)
			}
		case rule == nil:
			return nil, fault.New(fault.Invalid, "volumeAttributes: %q is not known; known are %s", ident.Printable(key), strings.Join(KnownAttributes(), ", "))
		case !rule.MatchString(value):
			return nil, refused(key, value, "of the form "+rule.String())
		default:
			rec.Parameters[key] = value
		}
	}
	rec.Parameters[attributeProtocol] = protocol
	return rec, nil
}

func refused(key, value, want string) error {
	return fault.New(fault.Invalid, "volumeAttributes: %s is %q; it must be %s", key, ident.Printable(value), want)
}

// repeats refuses a request that is not the one of which the record is.
func (rec *record) repeats(r *Request) error {
	switch {
	case rec.TargetPath != r.TargetPath:
		return fault.New(fault.Exists, "ephemeral volume %s is published at %s: unpublish it there first", r.Handle, rec.TargetPath)
	case !maps.Equal(rec.Attributes, r.author()):
		return fault.New(fault.Exists, "ephemeral volume %s was made with other volumeAttributes: unpublish it first", r.Handle)
	}
	return nil
}
