package node

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// A place is a path of this node where a volume is seen: its staging path, or
// one where it is published.
type place struct {
	// record is the volume's stage record, or what the mount table tells where
	// every record of the volume is lost.
	record *stageRecord
	// mount is what is mounted there: nothing at a block volume's staging path.
	mount mount.Info
}

// checkPlace checks the arguments of a call that looks at a volume where it is
// seen. No volume is seen at a path that is not a clean absolute one.
func checkPlace(volumeID, path string) error {
	if path == "" {
		return fault.New(fault.Invalid, "the volume path is missing")
	}
	if _, err := ident.ParseVolumeID(volumeID); err != nil {
		return err
	}
	if CheckPath("volume path", path) != nil {
		return nowhere(volumeID, path, "it is not a clean absolute path")
	}
	return nil
}

// place finds the volume at a path. A volume that is not there, another one's
// path among them, is fault.NotFound.
func (s *Service) place(ctx context.Context, volumeID, path string) (*place, error) {
	records, err := s.records.stages(volumeID)
	if err != nil {
		return nil, err
	}
	here, err := s.Mounter.At(ctx, path)
	if err != nil {
		return nil, err
	}
	if len(here) == 0 {
		for _, r := range records {
			if r.block() && r.StagingPath == path && r.Boot == s.boot {
				return &place{record: r}, nil
			}
		}
		return nil, nowhere(volumeID, path, "nothing is mounted there")
	}
	p := &place{mount: here[len(here)-1]}
	for _, r := range records {
		if r.block() && s.showsNode(p.mount, r) || !r.block() && s.shows(p.mount, r) {
			p.record = r
			return p, nil
		}
	}
	if len(records) > 0 {
		return nil, nowhere(volumeID, path, "it holds a mount of "+p.mount.Source)
	}
	p.record, err = s.unrecorded(volumeID, p.mount)
	if errors.Is(err, fault.Precondition) {
		return nil, nowhere(volumeID, path, err.Error())
	}
	return p, err
}

func nowhere(volumeID, path, why string) error {
	return fault.New(fault.NotFound, "volume %s is not staged or published at %s: %s", volumeID, ident.Printable(path), why)
}

// nfs reports whether the volume is an NFS export.
func (p *place) nfs() bool { return p.record.Protocol == publish.NFS }

// attachedDisk returns the volume's disk, which must be attached.
func (s *Service) attachedDisk(ctx context.Context, p *place) (attach.Device, error) {
	d, attached, err := s.find(ctx, p.record)
	if err == nil && !attached {
		err = fault.New(fault.Unavailable, "the disk of volume %s is gone: unpublish, unstage and stage it again", p.record.VolumeID)
	}
	if err != nil {
		return attach.Device{}, err
	}
	if d.Path, err = filepath.EvalSymlinks(d.Path); err != nil {
		return attach.Device{}, fault.New(fault.Unavailable, "the device of volume %s is gone: %w", p.record.VolumeID, err)
	}
	return d, nil
}
