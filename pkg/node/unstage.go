package node

import (
	"context"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// Unstage undoes Stage: the volume is unmounted at the staging path, and with
// its last staging path detached. It needs neither a context nor a device that
// works, and it needs no record where something is mounted that tells what it
// is. The staging path itself is the orchestrator's and stays.
//
// Not staged there is a success. Errors: fault.Precondition, with nothing
// changed, while the volume is published, when something else is mounted there,
// or when what is mounted cannot be told.
func (s *Service) Unstage(ctx context.Context, volumeID, stagingPath string) error {
	known, err := checkUndo(volumeID, "staging path", stagingPath)
	if err != nil || !known {
		return err
	}
	return s.do(ctx, "NodeUnstageVolume", volumeID, stagingPath, s.server(volumeID), func(ctx context.Context) error {
		return s.unstage(ctx, volumeID, stagingPath)
	})
}

// checkUndo checks the arguments of a call that undoes. An id that cannot be
// ours names nothing, so there is nothing to undo.
func checkUndo(volumeID, what, path string) (known bool, err error) {
	if _, err := ident.ParseVolumeID(volumeID); err != nil && volumeID == "" {
		return false, err
	} else if err != nil {
		return false, CheckPath(what, path)
	}
	return true, CheckPath(what, path)
}

func (s *Service) unstage(ctx context.Context, volumeID, stagingPath string) error {
	r, err := s.records.stage(volumeID, stagingPath)
	if err != nil {
		return err
	}
	here, err := s.Mounter.At(ctx, stagingPath)
	if err != nil {
		return err
	}
	switch {
	case r == nil && len(here) == 0:
		return nil
	case r == nil:
		// The record is made again first: a crash between the unmount and the
		// detach would leave nothing from which the rest could be told.
		top := here[len(here)-1]
		if r, err = s.fromTable(volumeID, stagingPath, top, number{top.Major, top.Minor}); err != nil {
			return err
		}
		if err := s.records.saveStage(r); err != nil {
			return err
		}
	}
	for _, i := range here {
		if !s.shows(i, r) {
			return foreign(i, "which is not volume "+volumeID)
		}
	}
	other, err := s.sibling(ctx, r)
	if err != nil {
		return err
	}
	if other == "" {
		if err := s.unused(ctx, r); err != nil {
			return err
		}
	}
	if len(here) > 0 {
		if err := s.unmount(ctx, stagingPath); err != nil {
			return err
		}
	}
	if other == "" {
		if err := s.detachUnused(ctx, r); err != nil {
			return err
		}
		if err := s.forgetPublications(ctx, volumeID); err != nil {
			return err
		}
	}
	return s.records.removeStage(r)
}

// unused refuses while the volume is published.
func (s *Service) unused(ctx context.Context, r *stageRecord) error {
	path, err := s.user(ctx, r, true)
	if err == nil && path != "" {
		err = fault.New(fault.Precondition, "volume %s is still in use at %s: unpublish it there first", r.VolumeID, path)
	}
	return err
}

// unmount takes away what is at path, and believes the mount table only.
func (s *Service) unmount(ctx context.Context, path string) error {
	if err := s.Mounter.Unmount(ctx, path); err != nil {
		return err
	}
	left, err := s.Mounter.At(ctx, path)
	if err == nil && len(left) > 0 {
		err = fault.New(fault.Unavailable, "%s is still mounted after an unmount that succeeded: repeat the call", path)
	}
	return err
}

// forgetPublications removes the volume's publish records that have no mount.
func (s *Service) forgetPublications(ctx context.Context, volumeID string) error {
	all, err := s.records.publishes(volumeID)
	if err != nil {
		return err
	}
	for _, p := range all {
		var here []mount.Info
		if here, err = s.Mounter.At(ctx, p.TargetPath); err != nil {
			return err
		}
		if len(here) == 0 {
			if err := s.records.removePublish(volumeID, p.TargetPath); err != nil {
				return err
			}
		}
	}
	return nil
}
