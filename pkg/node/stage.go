package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// Stage makes the volume ready at its staging path: attached, and, unless it
// is used as a block device, mounted there, with a filesystem that is made when
// the device is blank. The staging path may be missing; it is not removed later.
//
// Staged there already, identical and working, is a success. What Stage began
// and could not finish it takes back, unless another staging path needs it.
//
// Errors: fault.Exists when the volume is staged there differently, or another
// volume is; fault.Precondition when the device holds anything but the
// filesystem that is wanted, or when the node must be configured; whatever
// attaching and mounting return.
func (s *Service) Stage(ctx context.Context, r StageRequest) error {
	w, err := s.newStaging(&r)
	if err != nil {
		return err
	}
	return s.do(ctx, "NodeStageVolume", r.VolumeID, r.StagingPath, serverOf(w.Target), func(ctx context.Context) error {
		return s.stage(ctx, w)
	}, targetKeys(w.Target.IQN)...)
}

func (s *Service) stage(ctx context.Context, w *staging) error {
	found, err := s.records.stage(w.VolumeID, w.StagingPath)
	if err != nil {
		return err
	}
	if found != nil {
		if err := s.follow(ctx, w, found); err != nil {
			return err
		}
	}
	here, err := s.Mounter.At(ctx, w.StagingPath)
	if err != nil {
		return err
	}
	if err := s.notAnothers(ctx, w, here); err != nil {
		return err
	}
	if w.block() {
		return s.stageBlock(ctx, w, found, here)
	}
	return s.stageMount(ctx, w, here)
}

// follow continues where an earlier stage of the volume at this path left off.
// One with other arguments is in the way only while it is in effect; what else
// it left is removed.
func (s *Service) follow(ctx context.Context, w *staging, found *stageRecord) error {
	if field := found.differs(&w.stageRecord); field != "" {
		live, err := s.live(ctx, found)
		if err != nil {
			return err
		}
		if live {
			return fault.New(fault.Exists, "volume %s is staged at %s with another %s: unstage it first", w.VolumeID, w.StagingPath, field)
		}
	}
	if !found.sameVolume(&w.stageRecord) {
		return s.detachUnused(ctx, found)
	}
	w.State = found.State
	w.Source, w.Boot, w.Major, w.Minor = found.Source, found.Boot, found.Major, found.Minor
	return nil
}

// notAnothers refuses a staging path where another volume is staged now, or any
// is published.
func (s *Service) notAnothers(ctx context.Context, w *staging, here []mount.Info) error {
	all, err := s.records.stagesAt(w.StagingPath)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.VolumeID == w.VolumeID {
			continue
		}
		if live, err := s.live(ctx, other); err != nil {
			return err
		} else if live {
			return fault.New(fault.Exists, "volume %s is staged at %s: unstage it first", other.VolumeID, w.StagingPath)
		}
	}
	published, err := s.records.publishesAt(w.StagingPath)
	if err != nil {
		return err
	}
	for _, p := range published {
		if slices.ContainsFunc(here, func(i mount.Info) bool { return s.is(i, p) }) {
			return fault.New(fault.Exists, "volume %s is published at %s: stage elsewhere", p.VolumeID, w.StagingPath)
		}
	}
	return nil
}

func (s *Service) stageBlock(ctx context.Context, w *staging, found *stageRecord, here []mount.Info) error {
	if len(here) > 0 {
		return fault.New(fault.Exists, "a %s filesystem of %s is mounted at %s: unstage it, or stage the block volume elsewhere",
			here[0].FSType, here[0].Source, w.StagingPath)
	}
	err := s.beginBlock(ctx, w)
	// A volume that was staged before may be published: it stays as it is.
	if err != nil && found == nil {
		return s.takeBack(ctx, w, err)
	}
	return err
}

func (s *Service) beginBlock(ctx context.Context, w *staging) error {
	if err := s.forgetFormatting(w); err != nil {
		return err
	}
	if err := s.records.saveStage(&w.stageRecord); err != nil {
		return err
	}
	d, err := s.Attachers[w.Protocol].Attach(ctx, w.Target, w.credentials)
	if err != nil {
		return err
	}
	s.note(&w.stageRecord, d)
	return s.records.saveStage(&w.stageRecord)
}

// forgetFormatting ends what records say of a mkfs that was cut off: from now on
// the disk may hold a workload's own data, which look no different.
func (s *Service) forgetFormatting(w *staging) error {
	w.State = ""
	all, err := s.records.stages(w.VolumeID)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.State != stateFormatting {
			continue
		}
		r.State = ""
		if err := s.records.saveStage(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) stageMount(ctx context.Context, w *staging, here []mount.Info) error {
	before := w.stageRecord
	d, attached, err := s.find(ctx, &w.stageRecord)
	if err != nil {
		return err
	}
	if len(here) > 0 {
		for _, i := range here {
			// The disk may have come back with another number.
			if !s.shows(i, &w.stageRecord) && !s.shows(i, &before) {
				return fault.New(fault.Exists, "%s holds a %s mount of %s, not volume %s: unmount it, or stage elsewhere",
					w.StagingPath, i.FSType, i.Source, w.VolumeID)
			}
		}
		why, err := s.unusable(ctx, w, here, attached)
		if err != nil {
			return err
		}
		if why == "" {
			return s.staged(ctx, w, d)
		}
		if err := s.clear(ctx, w, &before, why); err != nil {
			return err
		}
	}
	if err := s.begin(ctx, w); err != nil {
		return s.takeBack(ctx, w, err)
	}
	return nil
}

// begin attaches and mounts. The record comes before everything else.
func (s *Service) begin(ctx context.Context, w *staging) error {
	if err := s.records.saveStage(&w.stageRecord); err != nil {
		return err
	}
	if err := s.stagingDir(w.StagingPath); err != nil {
		return err
	}
	d, err := s.Attachers[w.Protocol].Attach(ctx, w.Target, w.credentials)
	if err != nil {
		return err
	}
	s.note(&w.stageRecord, d)
	if w.Protocol == publish.NFS {
		if err := s.records.saveStage(&w.stageRecord); err != nil {
			return err
		}
		options, sensitive := s.mountOptions(w)
		return s.Mounter.Mount(ctx, d.Path, w.StagingPath, w.FSType, options, sensitive)
	}
	return s.mountDisk(ctx, w, d)
}

// staged ends a stage of which all but the last steps were done before.
func (s *Service) staged(ctx context.Context, w *staging, d attach.Device) error {
	w.State = ""
	if err := s.records.saveStage(&w.stageRecord); err != nil {
		return err
	}
	return s.grow(ctx, w, d)
}

// stagingDir makes the staging path where the orchestrator has not. Nothing is
// mounted on it, so looking at it cannot hang.
func (s *Service) stagingDir(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.disk.mkdir(path); err != nil {
			return fault.New(fault.Precondition, "the staging path cannot be made: %w", err)
		}
		return nil
	case err != nil:
		return fault.New(fault.Precondition, "the staging path cannot be used: %w", err)
	case !st.IsDir():
		return fault.New(fault.Precondition, "staging path %s is not a directory: remove it", path)
	}
	return nil
}

// takeBack undoes what a stage that failed with cause began, and returns cause.
// The record goes last, and stays while anything else could not be undone.
func (s *Service) takeBack(ctx context.Context, w *staging, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	if err := s.undoStage(ctx, w); err != nil {
		return fmt.Errorf("%w; what had been begun could not be taken back: %v; unstage the volume, or repeat the call", cause, err)
	}
	return cause
}

func (s *Service) undoStage(ctx context.Context, w *staging) error {
	here, err := s.Mounter.At(ctx, w.StagingPath)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(here, func(i mount.Info) bool { return s.shows(i, &w.stageRecord) }) {
		if err := s.unmount(ctx, w.StagingPath); err != nil {
			return err
		}
	}
	if path, err := s.user(ctx, &w.stageRecord, true); err != nil {
		return err
	} else if path != "" {
		if other, err := s.sibling(ctx, &w.stageRecord); err != nil || other == "" {
			// Published, but not staged anywhere: only an unstage may end that.
			return err
		}
	}
	keep := w.State == stateFormatting && !w.formatted && !s.untouched(ctx, w)
	if err := s.detachUnused(ctx, &w.stageRecord); err != nil || keep {
		return err
	}
	return s.records.removeStage(&w.stageRecord)
}

// untouched reports whether the device is as blank as before mkfs was tried.
func (s *Service) untouched(ctx context.Context, w *staging) bool {
	d, attached, err := s.find(ctx, &w.stageRecord)
	if err != nil || !attached {
		return false
	}
	c, err := s.Filesystems.Probe(ctx, d.Path)
	return err == nil && c.Blank
}

// detachUnused detaches the volume unless another staging path needs it. One
// that is still mounted anywhere is never detached: the kernel would let it go
// from under the filesystem.
func (s *Service) detachUnused(ctx context.Context, r *stageRecord) error {
	other, err := s.sibling(ctx, r)
	if err != nil || other != "" {
		return err
	}
	if err := s.unused(ctx, r); err != nil {
		return err
	}
	a, err := s.attacher(r.Protocol)
	if err != nil {
		return err
	}
	return a.Detach(ctx, r.Target)
}
