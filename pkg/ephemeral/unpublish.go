package ephemeral

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/step"
)

// Unpublish takes a pod's volume away from the target path and destroys it. ours is
// false for a volume that is none, or none any more.
//
// Not published at that path is a success. Until the controller has destroyed the
// volume the error is what it answers, fault.Unavailable while it does not.
func (s *Service) Unpublish(ctx context.Context, handle, targetPath string) (ours bool, err error) {
	if !handlePattern.MatchString(handle) {
		return false, nil
	}
	found := make(chan bool, 1) // the operation may outlive this call
	err = s.do(ctx, "NodeUnpublishVolume", handle, func(ctx context.Context) error {
		rec, err := s.records.read(handle)
		found <- rec != nil
		if err != nil || rec == nil || rec.TargetPath != targetPath {
			return err
		}
		if err := s.Node.Unpublish(ctx, rec.VolumeID, targetPath); err != nil {
			return err
		}
		return s.dispose(ctx, rec)
	})
	if err != nil {
		return true, err
	}
	return <-found, nil
}

// dispose takes away all that there is of a volume that no pod sees any more, the
// record last. Whatever of it is done already, or was never begun, is a success.
func (s *Service) dispose(ctx context.Context, rec *record) error {
	staging := s.records.staging(rec.Handle)
	if err := s.Node.Unstage(ctx, rec.VolumeID, staging); err != nil {
		return err
	}
	err := step.Do(ctx, step.File, "rmdir", func() error { return unix.Rmdir(staging) })
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, unix.ENOTEMPTY):
		return fault.New(fault.Precondition, "staging path %s is not mounted and has something in it that is on the node's own disk: move it away", staging)
	default:
		return fault.New(fault.Unavailable, "staging path %s cannot be removed: repeat the call: %w", staging, err)
	}
	if err := s.destroy(ctx, rec); err != nil {
		return err
	}
	return s.records.remove(rec.Handle)
}

// destroy has the controller close and delete the volume. Of one that may never
// have been made, another of its name is left alone.
func (s *Service) destroy(ctx context.Context, rec *record) error {
	if rec.State == begun {
		v, err := s.Controller.Get(ctx, rec.VolumeID)
		switch {
		case fault.Kind(err) == fault.NotFound:
			return nil
		case err != nil:
			return err
		case !isEphemeral(v):
			s.Log.WithField("volume", rec.VolumeID).Warn("a volume of the name of an ephemeral one is left alone: it is none")
			return nil
		}
	}
	if err := s.Controller.Unpublish(ctx, rec.VolumeID, rec.NodeID); err != nil && fault.Kind(err) != fault.NotFound {
		return err
	}
	return s.Controller.Delete(ctx, rec.VolumeID)
}
