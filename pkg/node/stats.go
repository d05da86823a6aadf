package node

import (
	"context"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
)

// statsTimeout bounds a question that came without a deadline.
const statsTimeout = time.Minute

// Stats is how large a volume is, and for a filesystem how full.
type Stats struct {
	Block bool
	// SizeBytes is a block volume's.
	SizeBytes int64
	// Usage is a filesystem's.
	Usage Usage
}

// Stats asks for the volume that is staged or published at path. It takes no
// lock and changes nothing. It ends with ctx, also when the volume's server
// never answers; questions that cannot be ended are counted for each server, and
// further ones are fault.Unavailable once there are many.
//
// Errors: fault.NotFound when the volume is not at path; fault.Unavailable when
// its filesystem answers with an error, or its disk is gone.
func (s *Service) Stats(ctx context.Context, volumeID, path string) (Stats, error) {
	if err := checkPlace(volumeID, path); err != nil {
		return Stats{}, err
	}
	var stats Stats
	err := s.ask(ctx, "NodeGetVolumeStats", volumeID, func(ctx context.Context) (err error) {
		stats, err = s.stats(ctx, volumeID, path)
		return err
	})
	if err != nil {
		return Stats{}, err // fn may still be writing
	}
	return stats, nil
}

// ask runs a question that may hang.
func (s *Service) ask(ctx context.Context, what, volumeID string, fn func(context.Context) error) error {
	return s.Operations.Do(ctx, op.Spec{What: what, Group: questions(s.server(volumeID)), Timeout: statsTimeout}, fn)
}

// questions is the group of what asks a server. It is another than that of the
// calls that stage and unstage: those must go through while questions hang.
func questions(server string) string { return "questions to " + server }

func (s *Service) stats(ctx context.Context, volumeID, path string) (Stats, error) {
	p, err := s.place(ctx, volumeID, path)
	if err != nil {
		return Stats{}, err
	}
	if p.record.block() {
		d, err := s.attachedDisk(ctx, p)
		if err != nil {
			return Stats{}, err
		}
		size, err := s.Filesystems.SizeBytes(d.Path)
		return Stats{Block: true, SizeBytes: size}, err
	}
	u, err := s.usage(ctx, p)
	return Stats{Usage: u}, err
}

// usage asks the filesystem of a place, and makes sure that it was asked: a
// mount that has gone meanwhile shows the node's own disk.
func (s *Service) usage(ctx context.Context, p *place) (Usage, error) {
	u, err := s.Host.Usage(ctx, p.mount.Target)
	if err != nil {
		return Usage{}, err
	}
	here, err := s.Mounter.At(ctx, p.mount.Target)
	if err != nil {
		return Usage{}, err
	}
	if len(here) == 0 || here[len(here)-1].ID != p.mount.ID {
		return Usage{}, fault.New(fault.NotFound, "volume %s is no longer mounted at %s", p.record.VolumeID, p.mount.Target)
	}
	return u, nil
}
