package inprocess

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/volume"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
	sanityv0 "github.com/tarn-csi/tarn/test/sanity/v0"
)

// mutant is the driver with one part that is broken.
type mutant struct {
	// name says what is broken, caught is the check that must see it.
	name, caught string
	use          use
	change       func(*Parts)
}

var mutants = slices.Concat(storageMutants, nodeMutants, []mutant{
	{"the limit of a size is dropped", "size/limit-alone-is-kept", overNFS,
		asks(func(r *csiv0.CreateVolumeRequest) {
			if r.CapacityRange != nil {
				r.CapacityRange.LimitBytes = 0
			}
		})},
	{"a size that is asked for is dropped", "create/repeat-with-a-larger-size-already-exists", overNFS,
		asks(func(r *csiv0.CreateVolumeRequest) { r.CapacityRange = nil })},
	{"unknown parameters are dropped", "create/unknown-parameter-is-refused", overNFS,
		asks(func(r *csiv0.CreateVolumeRequest) {
			r.Parameters = map[string]string{"protocol": r.Parameters["protocol"]}
		})},
	{"only the first capability is read", "create/unsupported-among-supported-is-refused", asExt4,
		asks(func(r *csiv0.CreateVolumeRequest) {
			if len(r.VolumeCapabilities) > 1 {
				r.VolumeCapabilities = r.VolumeCapabilities[:1]
			}
		})},
	{"max_entries is not kept", "list/never-more-than-max-entries", overNFS,
		asks(func(r *csiv0.ListVolumesRequest) { r.MaxEntries = 0 })},
	{"a bad token lists from the start", "list/bad-token-is-aborted", overNFS,
		asks(func(r *csiv0.ListVolumesRequest) { r.StartingToken = "" })},
	{"readonly is not passed to the node", "lifecycle/readonly-publish-takes-no-write", overNFS,
		asks(func(r *csiv0.NodePublishVolumeRequest) { r.Readonly = false })},
	{"readonly of a disk is not passed to the node", "lifecycle/readonly-publish-takes-no-write", asExt4,
		asks(func(r *csiv0.NodePublishVolumeRequest) { r.Readonly = false })},
	{"an unknown volume is an internal error", "publish/unknown-volume-is-not-found", asExt4,
		recodes(codes.NotFound, codes.Internal)},
	{"a taken name is an invalid argument", "create/repeat-with-other-parameters-already-exists", asBlock,
		recodes(codes.AlreadyExists, codes.InvalidArgument)},
	{"errors have no message", "wire/every-error-has-a-message", overNFS,
		errorsAre(func(s *status.Status) error { return status.Error(s.Code(), "") })},
	{"errors have details", "wire/no-error-has-details", overNFS,
		errorsAre(func(s *status.Status) error {
			with, err := s.WithDetails(&csiv0.ProbeRequest{})
			return errors.Join(err, with.Err())
		})},
	{"a secret is among the attributes", "wire/no-answer-holds-a-secret", asExt4,
		before(func(ctx context.Context, req proto.Message, next next) (proto.Message, error) {
			resp, err := next(ctx, req)
			if r, ok := req.(*csiv0.CreateVolumeRequest); ok && err == nil {
				v := resp.(*csiv0.CreateVolumeResponse).GetVolume()
				for key, value := range r.GetControllerCreateSecrets() {
					v.Attributes[key] = value
				}
			}
			return resp, err
		})},
	{"a delete unpublishes first", "publish/published-volume-is-not-deleted", asExt4,
		unpublishesBefore(func(req proto.Message) string {
			r, _ := req.(*csiv0.DeleteVolumeRequest)
			return r.GetVolumeId()
		})},
})

// next calls what is behind.
type next func(ctx context.Context, req proto.Message) (proto.Message, error)

// before puts something in front of the services.
func before(do func(ctx context.Context, req proto.Message, next next) (proto.Message, error)) func(*Parts) {
	return func(p *Parts) {
		p.Before = append(p.Before, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return do(ctx, req.(proto.Message), func(ctx context.Context, req proto.Message) (proto.Message, error) {
				resp, err := handler(ctx, req)
				if err != nil {
					return nil, err
				}
				return resp.(proto.Message), nil
			})
		})
	}
}

// asks changes requests of one type.
func asks[R proto.Message](edit func(R)) func(*Parts) {
	return before(func(ctx context.Context, req proto.Message, next next) (proto.Message, error) {
		if r, ok := req.(R); ok {
			edit(r)
		}
		return next(ctx, req)
	})
}

// errorsAre changes every error.
func errorsAre(edit func(*status.Status) error) func(*Parts) {
	return before(func(ctx context.Context, req proto.Message, next next) (proto.Message, error) {
		resp, err := next(ctx, req)
		if err != nil {
			return nil, edit(status.Convert(err))
		}
		return resp, nil
	})
}

// unpublishesBefore unpublishes a volume from everywhere before some requests.
func unpublishesBefore(volumeOf func(proto.Message) string) func(*Parts) {
	return func(p *Parts) {
		register := p.Register
		var volumes *volume.Service
		p.Register = func(s *grpc.Server, i *csi.Identity, c *csi.Controller, n *csi.Node) {
			volumes = c.Volumes
			register(s, i, c, n)
		}
		before(func(ctx context.Context, req proto.Message, next next) (proto.Message, error) {
			if id := volumeOf(req); id != "" {
				_ = volumes.Unpublish(ctx, id, "") // that it fails is the mutant's matter
			}
			return next(ctx, req)
		})(p)
	}
}

func recodes(from, to codes.Code) func(*Parts) {
	return errorsAre(func(s *status.Status) error {
		if s.Code() == from {
			return status.Error(to, s.Message())
		}
		return s.Err()
	})
}

// Each mutant is seen by the check that is named for it, and that check passes
// on the driver as it is.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			d := Start(t, m.change)
			o := d.options(m.use)
			o.Only = regexp.MustCompile("^" + m.caught + "$|^wire/|^cleanup/")
			if strings.HasPrefix(m.caught, "wire/") || strings.HasPrefix(m.caught, "cleanup/") {
				o.Only = regexp.MustCompile("^wire/|^cleanup/|^create/|^publish/")
			}
			o.Timeout, o.RetryFor = 5*time.Second, time.Second
			sanityv0.MustFail(t, o, m.caught)
		})
	}
}

// There are enough mutants to mean something. That the driver itself passes the
// checks that must catch them, TestConformance shows.
func TestMutantsAreMany(t *testing.T) {
	if len(mutants) < 10 {
		t.Errorf("%d mutants", len(mutants))
	}
}
