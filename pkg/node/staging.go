package node

import (
	"slices"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

const (
	defaultFSType = "ext4"
	// fsTypeNFS is mounted with whatever version the options name.
	fsTypeNFS = "nfs"
)

// diskFSTypes are what mkfs is run for. btrfs is not among them: a clone has
// the filesystem id of its source, which one kernel does not tell apart.
var diskFSTypes = map[string]bool{"ext4": true, "ext3": true, "xfs": true}

// staging is one stage: the record to be, and what no record holds.
type staging struct {
	stageRecord
	credentials *chap.Credentials
	// options and sensitive are the user's, without ro and rw.
	options, sensitive []string
	// noWrites forbids every write to the device, mkfs, fsck and the replay of
	// a journal among them.
	noWrites bool
	// formatted is set once mkfs has succeeded.
	formatted bool
}

// newStaging reads a request, and refuses what could not be staged whatever
// the state of the node.
func (s *Service) newStaging(r *StageRequest) (*staging, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	w, c, err := s.wanted(r.VolumeID, r.StagingPath, r.Capability, r.PublishContext, r.VolumeContext)
	if err != nil {
		return nil, err
	}
	if c.Mode.Known() && r.Capability.Mode.MultiNode() && !c.Mode.MultiNode() {
		return nil, fault.New(fault.Precondition, "volume %s is published to this node as %s, which does not allow %s: publish it in that mode",
			r.VolumeID, c.Mode, r.Capability.Mode)
	}
	if w.credentials, err = s.credentials(c, r.Secrets); err != nil {
		return nil, err
	}
	return w, nil
}

// wanted is what a stage with these arguments leads to.
func (s *Service) wanted(volumeID, path string, capability access.Capability, publishContext, attributes map[string]string) (*staging, publish.Context, error) {
	c, err := publish.Parse(publishContext)
	if err != nil {
		return nil, c, err
	}
	if p := attributes[attributeProtocol]; p != "" && p != c.Protocol {
		return nil, c, fault.New(fault.Invalid, "the volume's protocol is %q and the publish context's %q", ident.Printable(p), c.Protocol)
	}
	if _, err := s.attacher(c.Protocol); err != nil {
		return nil, c, err
	}
	w := &staging{stageRecord: stageRecord{
		VolumeID:       volumeID,
		StagingPath:    path,
		Protocol:       c.Protocol,
		Type:           capability.Type.String(),
		WriteProtected: c.ReadOnly,
		Target:         attach.Target{Server: c.Server, Share: c.Share, IQN: c.IQN, Portals: c.Portals, LUN: c.LUN, Serial: c.Serial},
	}}
	w.noWrites = c.ReadOnly || capability.Mode.ReaderOnly()
	w.ReadOnly = w.noWrites
	if c.Protocol == publish.ISCSI {
		w.Target.Initiator = s.Naming.Initiator(s.NodeID.Name)
		if c.Initiator != w.Target.Initiator {
			return nil, c, fault.New(fault.Precondition,
				"the target was opened to initiator %s and this node is %s: set the same --instance and iqn prefix on the controller and on the node",
				c.Initiator, w.Target.Initiator)
		}
	}
	if err := w.use(capability, attributes); err != nil {
		return nil, c, err
	}
	if c.Protocol == publish.NFS {
		return w, c, nil
	}
	if w.Type == access.Mount.String() && capability.Mode.MultiNode() && !capability.Mode.ReaderOnly() {
		return nil, c, fault.New(fault.Invalid, "a filesystem on one disk cannot be written by one node while others have it (%s): use NFS", capability.Mode)
	}
	return w, c, nil
}

// use fills in how the volume is to be used.
func (w *staging) use(c access.Capability, attributes map[string]string) error {
	if c.Type == access.Block {
		if w.Protocol == publish.NFS {
			return fault.New(fault.Invalid, "an NFS volume cannot be used as a block device: use protocol iscsi")
		}
		return nil
	}
	w.FSType = c.FSType
	if w.FSType == "" {
		w.FSType = attributes[attributeFSType]
	}
	switch {
	case w.Protocol == publish.NFS && (w.FSType == "" || w.FSType == "nfs4"):
		w.FSType = fsTypeNFS
	case w.Protocol == publish.NFS && w.FSType != fsTypeNFS:
		return fault.New(fault.Invalid, "an NFS volume cannot have filesystem %q: leave it out", ident.Printable(w.FSType))
	case w.FSType == "":
		w.FSType = defaultFSType
	case w.Protocol == publish.ISCSI && !diskFSTypes[w.FSType]:
		return fault.New(fault.Invalid, "filesystem %q is not known: ext4, ext3 and xfs are", ident.Printable(w.FSType))
	}
	var readOnly bool
	var err error
	if len(c.MountFlags) > 0 {
		w.sensitive, readOnly, err = parseOptions(c.MountFlags)
	} else {
		w.options, readOnly, err = parseOptions([]string{attributes[attributeMountOptions]})
	}
	w.ReadOnly = w.ReadOnly || readOnly
	return err
}

func (s *Service) credentials(c publish.Context, secrets map[string]string) (*chap.Credentials, error) {
	if c.Protocol != publish.ISCSI {
		return nil, nil
	}
	var pair chap.Credentials
	switch c.CHAP {
	case chap.None:
		return nil, nil
	case chap.Secrets:
		var err error
		if pair, err = chap.FromSecrets(secrets); err != nil {
			return nil, err
		}
	default:
		if len(s.NodeKey) == 0 {
			return nil, fault.New(fault.Precondition, "the target asks for a derived CHAP password and this node has no key: give it its key file")
		}
		pair = chap.Derive(s.NodeKey, s.NodeID.Name, c.Serial)
	}
	return &pair, nil
}

// mountOptions returns what the volume is mounted with.
func (s *Service) mountOptions(w *staging) (options, sensitive []string) {
	options, sensitive = slices.Clone(w.options), slices.Clone(w.sensitive)
	if w.Protocol == publish.NFS {
		// The options are completed where the user's are: in one list.
		if len(sensitive) > 0 {
			sensitive = s.NFSOptions(sensitive)
		} else {
			options = s.NFSOptions(options)
		}
	}
	if w.ReadOnly {
		options = append([]string{"ro"}, options...)
	}
	switch w.FSType {
	case "xfs":
		// A clone has the uuid of its source, and either may be mounted first.
		options = append(options, "nouuid")
		if w.noWrites {
			options = append(options, "norecovery")
		}
	case "ext4", "ext3":
		if w.noWrites {
			// A read-only mount would still write to replay the journal.
			options = append(options, "noload")
		}
	}
	return options, sensitive
}

// readOnlyNow reports that the filesystem refuses writes, or has shut down,
// wherever it is mounted: what a kernel does after an error.
func readOnlyNow(i mount.Info) bool {
	for _, o := range i.SuperOptions {
		if o == "ro" || o == "emergency_ro" || o == "shutdown" {
			return true
		}
	}
	return false
}
