package node

import (
	"context"
	"errors"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// aliveTimeout is how long a mount may take to answer before its server is
// taken for one that does not answer.
const aliveTimeout = 10 * time.Second

// unusable says why what is mounted at the staging path, all of it this
// volume's, is not what the stage would make, or "" when it is. A mount is
// believed only when it is this device, answers, and can be written if that is
// wanted.
//
// A server or disk that does not answer is fault.Unavailable: it may come back,
// and its users with it, so nothing is torn down.
func (s *Service) unusable(ctx context.Context, w *staging, here []mount.Info, attached bool) (string, error) {
	top := here[len(here)-1]
	if w.Protocol != publish.NFS && top.FSType != w.FSType {
		return "", fault.New(fault.Exists, "volume %s is staged at %s with fs type %s: unstage it first", w.VolumeID, w.StagingPath, top.FSType)
	}
	switch {
	case len(here) > 1:
		return "it is mounted there more than once", nil
	case w.Protocol == publish.ISCSI && !attached:
		return "its disk is gone", nil
	case !s.shows(top, &w.stageRecord):
		return "its disk has come back under another number", nil
	case w.Protocol == publish.ISCSI && top.Root != "/":
		return "only a part of it is mounted there", nil
	case !w.ReadOnly && readOnlyNow(top):
		return "its filesystem has become read-only", nil
	case w.ReadOnly != top.ReadOnly():
		if w.ReadOnly {
			return "", fault.New(fault.Exists, "volume %s is staged at %s with another readonly: unstage it first", w.VolumeID, w.StagingPath)
		}
		return "it is mounted read-only", nil
	}
	ask, cancel := context.WithTimeout(ctx, s.aliveTimeout)
	defer cancel()
	err := s.Host.Alive(ask, w.StagingPath)
	switch {
	case err == nil:
		return "", nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return "", fault.New(fault.Unavailable, "volume %s is staged at %s, but %s does not answer: repeat the call when it does",
			w.VolumeID, w.StagingPath, serverOf(w.Target))
	}
	return "it answers with an error: " + err.Error(), nil
}

// clear unmounts what cannot be used, so that the stage begins anew. A disk's
// filesystem that is mounted elsewhere too would come back as it is.
func (s *Service) clear(ctx context.Context, w *staging, before *stageRecord, why string) error {
	if w.Protocol == publish.ISCSI {
		for _, r := range []*stageRecord{&w.stageRecord, before} {
			path, err := s.user(ctx, r, false)
			if err != nil {
				return err
			}
			if path != "" {
				return fault.New(fault.Precondition, "volume %s at %s must be mounted anew, since %s, and is still mounted at %s: unpublish and unstage it there first",
					w.VolumeID, w.StagingPath, why, path)
			}
		}
	}
	if err := s.unmount(ctx, w.StagingPath); err != nil {
		return err
	}
	s.Log.WithFields(map[string]any{"volume": w.VolumeID, "staging": w.StagingPath, "reason": why}).Warn("staged volume is mounted anew")
	return nil
}
