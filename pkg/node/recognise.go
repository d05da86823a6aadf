package node

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// number is a block device's.
type number struct{ major, minor int }

func isNFS(fsType string) bool { return fsType == "nfs" || fsType == "nfs4" }

// bindsNode reports whether a line of the mount table can be a device node
// bound somewhere: something below the root of a filesystem that holds nodes.
func bindsNode(i mount.Info) bool {
	return (i.FSType == "devtmpfs" || i.FSType == "tmpfs") && i.Root != "/"
}

// targetOf returns which target's disk a device is now. Anonymous numbers,
// those of filesystems without a disk, have the major number 0.
func (s *Service) targetOf(n number) (iqn string, lun int, ok bool) {
	if n.major == 0 {
		return "", 0, false
	}
	for _, protocol := range s.protocols() {
		if t, is := s.Attachers[protocol].(targets); is {
			if iqn, lun, ok = t.TargetOfDevice(n.major, n.minor); ok {
				return iqn, lun, true
			}
		}
	}
	return "", 0, false
}

// isDisk reports whether a device is the volume's disk. What the kernel says
// of it counts; only of a disk that it has lost, the record does, and only for
// the boot in which that was written.
func (s *Service) isDisk(n number, r *stageRecord) bool {
	if iqn, lun, ok := s.targetOf(n); ok {
		return iqn == r.Target.IQN && lun == r.Target.LUN
	}
	return r.Boot == s.boot && n == number{r.Major, r.Minor}
}

// shows reports whether a line of the mount table is the volume's filesystem.
func (s *Service) shows(i mount.Info, r *stageRecord) bool {
	if r.Protocol == publish.NFS {
		return isNFS(i.FSType) && i.Source == r.Source
	}
	return s.isDisk(number{i.Major, i.Minor}, r)
}

// showsNode reports whether a line of the mount table is the volume's device
// node, bound somewhere.
func (s *Service) showsNode(i mount.Info, r *stageRecord) bool {
	if r.Protocol != publish.ISCSI || !bindsNode(i) {
		return false
	}
	major, minor, err := s.Host.DeviceNumber(i.Target)
	return err == nil && s.isDisk(number{major, minor}, r)
}

func (s *Service) attacher(protocol string) (attach.Attacher, error) {
	a := s.Attachers[protocol]
	if a == nil {
		return nil, fault.New(fault.Precondition, "protocol %s is not enabled on this node: enable it at least until its volumes are unstaged", protocol)
	}
	return a, nil
}

// find returns the volume's device if it is attached now, and notes in the
// record what the mount table shows of it.
func (s *Service) find(ctx context.Context, r *stageRecord) (attach.Device, bool, error) {
	a, err := s.attacher(r.Protocol)
	if err != nil {
		return attach.Device{}, false, err
	}
	d, attached, err := a.Find(ctx, r.Target)
	// An export that has moved is still mounted from where it was.
	if err == nil && attached && r.Source == "" {
		s.note(r, d)
	}
	return d, attached, err
}

func (s *Service) note(r *stageRecord, d attach.Device) {
	if r.Protocol == publish.NFS {
		r.Source = d.Path
		return
	}
	r.Boot, r.Major, r.Minor = s.boot, int(d.Major), int(d.Minor)
}

// live reports whether what a record says is still so: the block device is
// attached, or the filesystem is mounted at the staging path.
func (s *Service) live(ctx context.Context, r *stageRecord) (bool, error) {
	if r.block() {
		if r.Boot != s.boot {
			return false, nil
		}
		_, attached, err := s.find(ctx, r)
		return attached, err
	}
	here, err := s.Mounter.At(ctx, r.StagingPath)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(here, func(i mount.Info) bool { return s.shows(i, r) }), nil
}

// sibling returns another staging path where the same volume is in use, or "".
func (s *Service) sibling(ctx context.Context, r *stageRecord) (string, error) {
	all, err := s.records.stages(r.VolumeID)
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if other.StagingPath == r.StagingPath || !other.sameVolume(r) {
			continue
		}
		if live, err := s.live(ctx, other); err != nil || live {
			return other.StagingPath, err
		}
	}
	return "", nil
}

// user returns where the volume is seen apart from its staging path, or "":
// as a filesystem, or with nodes also as a device.
func (s *Service) user(ctx context.Context, r *stageRecord, nodes bool) (string, error) {
	table, err := s.Mounter.Mounts(ctx)
	if err != nil {
		return "", err
	}
	here, err := s.Mounter.At(ctx, r.StagingPath)
	if err != nil {
		return "", err
	}
	for _, i := range table {
		staged := slices.ContainsFunc(here, func(h mount.Info) bool { return h.ID == i.ID })
		if !staged && (s.shows(i, r) || nodes && s.showsNode(i, r)) {
			return i.Target, nil
		}
	}
	return "", nil
}

// fromTable is the record of a volume whose record is lost, made from what is
// mounted: the protocol, the export or the target are found there, or the
// answer is fault.Precondition. Nothing is guessed from ids or paths.
func (s *Service) fromTable(volumeID, stagingPath string, i mount.Info, n number) (*stageRecord, error) {
	r := &stageRecord{
		VolumeID: volumeID, StagingPath: stagingPath, Type: access.Mount.String(),
		FSType: i.FSType, ReadOnly: i.ReadOnly(),
	}
	if isNFS(i.FSType) && s.Attachers[publish.NFS] != nil {
		server, share, ok := strings.Cut(i.Source, ":/")
		if ok {
			r.Protocol, r.FSType, r.Source = publish.NFS, fsTypeNFS, i.Source
			r.Target = attach.Target{Server: server, Share: path.Clean("/" + share)}
			return r, s.unclaimed(r, i)
		}
	}
	if iqn, lun, ok := s.targetOf(n); ok {
		if uuid, ours := s.Naming.UUID(iqn); ours {
			r.Protocol = publish.ISCSI
			r.Target = attach.Target{IQN: iqn, LUN: lun, Serial: uuid, Initiator: s.Naming.Initiator(s.NodeID.Name)}
			r.Boot, r.Major, r.Minor = s.boot, n.major, n.minor
			return r, s.unclaimed(r, i)
		}
	}
	return nil, foreign(i, "and no record says that it is volume "+volumeID)
}

// unrecorded is fromTable for a place where the volume may be published: a
// filesystem, or a device node.
func (s *Service) unrecorded(volumeID string, i mount.Info) (*stageRecord, error) {
	if !bindsNode(i) {
		return s.fromTable(volumeID, "", i, number{i.Major, i.Minor})
	}
	major, minor, err := s.Host.DeviceNumber(i.Target)
	if err != nil {
		return nil, foreign(i, "which is no volume")
	}
	r, err := s.fromTable(volumeID, "", i, number{major, minor})
	if err == nil {
		r.Type = access.Block.String()
	}
	return r, err
}

// unclaimed refuses what another volume's record says is that volume's.
func (s *Service) unclaimed(r *stageRecord, i mount.Info) error {
	all, err := s.records.stages("")
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.VolumeID != r.VolumeID && other.Protocol == r.Protocol && other.Source == r.Source && other.Target.IQN == r.Target.IQN {
			return foreign(i, "which is volume "+other.VolumeID)
		}
	}
	return nil
}

// foreign refuses to touch a mount.
func foreign(i mount.Info, why string) error {
	return fault.New(fault.Precondition, "%s holds a %s mount of %s, %s: it is left alone, unmount it by hand if nothing needs it",
		i.Target, i.FSType, i.Source, why)
}
