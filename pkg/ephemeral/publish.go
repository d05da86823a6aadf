package ephemeral

import (
	"context"
	"maps"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Publish makes a pod's volume and shows it at the target path. A repeat goes on
// where an earlier call ended, and is a success where nothing is missing, also
// while no controller answers.
//
// An orchestrator need not unpublish what was refused, so a volume that no publish
// has shown yet is destroyed again, unless the failure is one that may pass:
// fault.Unavailable, fault.Busy, fault.Exhausted, or the caller's deadline.
//
// Errors: fault.Invalid for attributes; fault.Precondition where the node serves no
// such volumes; fault.Exhausted when it has as many as it may; fault.Exists for
// another request of the same volume; whatever the controller and the node return.
func (s *Service) Publish(ctx context.Context, r Request) error {
	if err := r.check(); err != nil {
		return err
	}
	return s.do(ctx, "NodePublishVolume", r.Handle, func(ctx context.Context) error {
		return s.publish(ctx, &r)
	})
}

func (s *Service) publish(ctx context.Context, r *Request) error {
	rec, err := s.records.read(r.Handle)
	switch {
	case err != nil:
		return err
	case rec == nil:
		if rec, err = s.begin(ctx, r); err != nil {
			return err
		}
	default:
		if err := rec.repeats(r); err != nil {
			return err
		}
	}
	if rec.State == published && s.bind(ctx, r, rec, nil, nil) == nil {
		return nil
	}
	err = s.make(ctx, r, rec)
	if err == nil || rec.State == published || uncertain(ctx, err) {
		return err
	}
	return s.takeBack(ctx, rec, err)
}

// begin records a volume that is to be made. A controller that does not answer is
// noticed before: on a node where there is none nothing is begun, and so there is
// nothing to undo that only a controller could.
func (s *Service) begin(ctx context.Context, r *Request) (*record, error) {
	rec, err := s.newRecord(r)
	if err != nil {
		return nil, err
	}
	switch v, err := s.Controller.Get(ctx, rec.VolumeID); {
	case fault.Kind(err) == fault.NotFound:
	case err != nil:
		return nil, err
	case !isEphemeral(v):
		return nil, fault.New(fault.Exists, "volume %s exists and is not ephemeral: delete it first", rec.VolumeID)
	}
	s.counting.Lock()
	defer s.counting.Unlock()
	names, err := s.records.names()
	if err == nil && int64(len(names)) >= s.MaxVolumes {
		err = fault.New(fault.Exhausted, "this node has %d ephemeral volumes, as many as it may: use a claim, or set a larger ephemeral.maxVolumes", len(names))
	}
	if err == nil {
		err = s.records.save(rec)
	}
	return rec, err
}

// make does what an orchestrator does for a claim: create, publish, stage, publish
// on the node. Each step that is done already is a success.
func (s *Service) make(ctx context.Context, r *Request, rec *record) error {
	parameters := r.pod()
	maps.Copy(parameters, rec.Parameters)
	v, err := s.Controller.Create(ctx, volume.CreateRequest{
		Name:         nameOf(rec.Handle),
		Size:         volume.Range{RequiredBytes: rec.Bytes, LimitBytes: rec.LimitBytes},
		Capabilities: []access.Capability{r.Capability},
		Parameters:   parameters,
	})
	if err != nil {
		return err
	}
	if v.ID != rec.VolumeID {
		return fault.New(fault.Precondition, "the controller calls the volume %s, and it should be %s: both must be of one version", v.ID, rec.VolumeID)
	}
	if err := s.reached(rec, made); err != nil {
		return err
	}
	// Open for writing even for a pod that only reads: mkfs has to.
	info, err := s.Controller.Publish(ctx, volume.PublishRequest{VolumeID: v.ID, NodeID: s.Node.ID(), Capability: r.Capability})
	if err != nil {
		return err
	}
	if err := s.Node.Stage(ctx, node.StageRequest{
		VolumeID: v.ID, StagingPath: s.records.staging(rec.Handle), Capability: r.Capability, PublishContext: info, VolumeContext: v.Context,
	}); err != nil {
		return err
	}
	if err := s.bind(ctx, r, rec, info, v.Context); err != nil {
		return err
	}
	return s.reached(rec, published)
}

// bind shows the staged volume at the target path.
func (s *Service) bind(ctx context.Context, r *Request, rec *record, publishContext, volumeContext map[string]string) error {
	return s.Node.Publish(ctx, node.PublishRequest{
		VolumeID: rec.VolumeID, StagingPath: s.records.staging(rec.Handle), TargetPath: rec.TargetPath, Capability: r.Capability,
		ReadOnly: r.ReadOnly, PublishContext: publishContext, VolumeContext: volumeContext,
	})
}

// reached records how far a volume is; it never goes back.
func (s *Service) reached(rec *record, state string) error {
	if rec.State == published || rec.State == state {
		return nil
	}
	rec.State = state
	return s.records.save(rec)
}

// takeBack undoes what a publish that failed with cause began, and returns cause;
// or, where that fails, an error after which the orchestrator will unpublish.
func (s *Service) takeBack(ctx context.Context, rec *record, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	err := s.Node.Unpublish(ctx, rec.VolumeID, rec.TargetPath)
	if err == nil || fault.Kind(err) == fault.Precondition {
		// What is at the target path and is not this volume stays; were it this
		// volume, it could not be unstaged.
		err = s.dispose(ctx, rec)
	}
	if err != nil {
		return fault.New(fault.Unavailable, "%w; what had been begun could not be taken back: %v; repeat the call, or unpublish the volume", cause, err)
	}
	return cause
}
