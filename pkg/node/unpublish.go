package node

import (
	"context"
	"slices"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// Unpublish undoes Publish: everything that is mounted at the target path is
// unmounted, and the path is removed when it is empty; its parent, the staging
// path and other target paths stay as they are.
//
// Not published there is a success. Errors: fault.Precondition, with nothing
// changed, when something else than the volume is mounted there.
func (s *Service) Unpublish(ctx context.Context, volumeID, targetPath string) error {
	known, err := checkUndo(volumeID, "target path", targetPath)
	if err != nil || !known {
		return err
	}
	return s.do(ctx, "NodeUnpublishVolume", volumeID, targetPath, s.server(volumeID), func(ctx context.Context) error {
		return s.unpublish(ctx, volumeID, targetPath)
	})
}

func (s *Service) unpublish(ctx context.Context, volumeID, targetPath string) error {
	r, err := s.records.publish(volumeID, targetPath)
	if err != nil {
		return err
	}
	if at, err := s.records.stagesAt(targetPath); err != nil {
		return err
	} else if len(at) > 0 {
		return fault.New(fault.Precondition, "%s is the staging path of volume %s: unstage it", targetPath, at[0].VolumeID)
	}
	here, err := s.Mounter.At(ctx, targetPath)
	if err != nil {
		return err
	}
	if err := s.ours(volumeID, r, here); err != nil {
		return err
	}
	if len(here) > 0 {
		if err := s.unmount(ctx, targetPath); err != nil {
			return err
		}
	}
	if err := s.removeTarget(targetPath); err != nil {
		return err
	}
	if r == nil {
		return nil
	}
	if err := s.writableAgain(ctx, r); err != nil {
		return err
	}
	return s.records.removePublish(volumeID, targetPath)
}

// ours refuses unless all that is mounted at the target path is the volume's.
// Where every record of the volume is lost, a mount counts as the volume's when
// it is of the kind that this driver makes and no other volume's: the
// orchestrator names the path, and nothing else could.
func (s *Service) ours(volumeID string, r *publishRecord, here []mount.Info) error {
	if len(here) == 0 {
		return nil
	}
	staged, err := s.records.stages(volumeID)
	if err != nil {
		return err
	}
	for _, i := range slices.Backward(here) {
		switch {
		case r != nil && s.is(i, r):
		case slices.ContainsFunc(staged, func(st *stageRecord) bool { return s.shows(i, st) || s.showsNode(i, st) }):
		case r == nil && len(staged) == 0:
			if _, err := s.unrecorded(volumeID, i); err != nil {
				return err
			}
		default:
			return foreign(i, "which is not volume "+volumeID)
		}
	}
	return nil
}
