package node

import (
	"context"
	"slices"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// mountDisk mounts an attached disk at the staging path, after it has been
// formatted or checked.
func (s *Service) mountDisk(ctx context.Context, w *staging, d attach.Device) error {
	table, err := s.Mounter.Mounts(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(table, func(i mount.Info) bool { return s.shows(i, &w.stageRecord) })
	if at >= 0 {
		// A second staging path: the kernel mounts the same filesystem again,
		// and nothing may look at the disk behind its back.
		err = s.join(w, table[at])
	} else {
		err = s.prepare(ctx, w, d)
	}
	if err != nil {
		return err
	}
	options, sensitive := s.mountOptions(w)
	if err := s.Mounter.Mount(ctx, d.Path, w.StagingPath, w.FSType, options, sensitive); err != nil {
		return err
	}
	if w.State != "" {
		w.State = ""
		if err := s.records.saveStage(&w.stageRecord); err != nil {
			return err
		}
	}
	return s.grow(ctx, w, d)
}

// join checks that a filesystem which is mounted can be mounted once more.
func (s *Service) join(w *staging, i mount.Info) error {
	switch {
	case i.FSType != w.FSType:
		return fault.New(fault.Precondition, "volume %s is mounted at %s as %s: it cannot be staged as %s", w.VolumeID, i.Target, i.FSType, w.FSType)
	case w.ReadOnly != readOnlyNow(i):
		return fault.New(fault.Precondition,
			"the filesystem of volume %s is mounted at %s, and read-only and writable mounts of one filesystem exclude each other: unpublish and unstage it there first",
			w.VolumeID, i.Target)
	}
	return s.records.saveStage(&w.stageRecord)
}

// prepare looks at the disk before it is mounted. Only one that reads and holds
// nothing is formatted, or one on which this node's own mkfs was cut off: the
// record says so, on the disk, before mkfs begins and until the first mount.
// What has a filesystem of the wanted type is never formatted, whatever the
// record says: another node may have used it since.
func (s *Service) prepare(ctx context.Context, w *staging, d attach.Device) error {
	c, err := s.Filesystems.Probe(ctx, d.Path)
	if err != nil {
		return err
	}
	cutOff := w.State == stateFormatting && !c.Blank && c.FSType == ""
	switch {
	case (c.Blank || cutOff) && w.noWrites:
		return fault.New(fault.Precondition, "volume %s has no filesystem and no write is granted: publish it writable once", w.VolumeID)
	case c.Blank || cutOff:
		w.State = stateFormatting
		if err := s.records.saveStage(&w.stageRecord); err != nil {
			return err
		}
		if err := s.Filesystems.Format(ctx, d.Path, w.FSType, nil, cutOff); err != nil {
			return err
		}
		w.formatted = true
		return nil
	case c.FSType != w.FSType:
		return fault.New(fault.Precondition,
			"volume %s holds %s and %s was asked for: it is never formatted again; ask for what it holds, or make a new volume", w.VolumeID, c.What, w.FSType)
	}
	if err := s.records.saveStage(&w.stageRecord); err != nil || w.noWrites {
		return err
	}
	return s.Filesystems.Check(ctx, d.Path, w.FSType)
}

// grow makes the filesystem fill a disk that is larger, as that of a volume
// restored into a larger one is.
func (s *Service) grow(ctx context.Context, w *staging, d attach.Device) error {
	if w.ReadOnly || !diskFSTypes[w.FSType] {
		return nil
	}
	return s.growAt(ctx, w.VolumeID, d, w.StagingPath)
}
