package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// Status is how bad a condition is. The zero value is none.
type Status int

// A degraded volume or server can be used, but not as it should be; an
// inaccessible one cannot be used.
const (
	Degraded Status = iota + 1
	Inaccessible
)

// Condition is something that is wrong. No two of one list have the same status
// and reason.
type Condition struct {
	Status Status
	// Reason is for machines: "NotMounted". Message is for people.
	Reason, Message string
}

type conditions []Condition

// add puts a condition into the list, or its message beside that of one with the
// same status and reason.
func (l *conditions) add(status Status, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	for n := range *l {
		if c := &(*l)[n]; c.Status == status && c.Reason == reason {
			c.Message += "; " + message
			return
		}
	}
	*l = append(*l, Condition{Status: status, Reason: reason, Message: message})
}

// HealthRequest asks how a volume is. Both paths may be empty.
type HealthRequest struct{ VolumeID, PublishPath, StagingPath string }

func (r *HealthRequest) check() error {
	if _, err := ident.ParseVolumeID(r.VolumeID); err != nil {
		return err
	}
	for what, path := range map[string]string{"publish path": r.PublishPath, "staging path": r.StagingPath} {
		if path != "" {
			if err := CheckPath(what, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// VolumeHealth says what is wrong with a volume, as this node sees it now:
// nothing is remembered. It takes no lock, changes nothing, and ends with ctx; a
// server that does not answer is a condition, found before ctx ends.
//
// Errors: fault.NotFound when the volume is neither staged nor published here.
func (s *Service) VolumeHealth(ctx context.Context, r HealthRequest) ([]Condition, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	staged, err := s.stagedOrSeen(ctx, &r)
	if err != nil {
		return nil, err
	}
	table, err := s.Mounter.Mounts(ctx)
	if err != nil {
		return nil, err
	}
	var list conditions
	reachable, err := s.targetHealth(ctx, &list, staged[0])
	if err != nil {
		return nil, err
	}
	mounted := func(st *stageRecord, path string) bool {
		return slices.ContainsFunc(table, func(i mount.Info) bool { return (path == "" || i.Target == path) && s.shows(i, st) })
	}
	for _, st := range staged {
		if !st.block() && st.StagingPath != "" && !mounted(st, st.StagingPath) {
			list.add(Inaccessible, "NotMounted", "the volume is not mounted at its staging path %s: unpublish it and stage it again", st.StagingPath)
		}
	}
	if err := s.publicationHealth(ctx, &list, &r); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(table, func(i mount.Info) bool {
		return slices.ContainsFunc(staged, func(st *stageRecord) bool { return !st.block() && s.shows(i, st) })
	})
	if at < 0 {
		return list, nil
	}
	return list, s.filesystemHealth(ctx, &list, staged[0], table[at], reachable)
}

// stagedOrSeen returns the volume's stage records, or what the mount table tells
// at one of the paths where they are lost: one at least.
func (s *Service) stagedOrSeen(ctx context.Context, r *HealthRequest) ([]*stageRecord, error) {
	staged, err := s.records.stages(r.VolumeID)
	if err != nil || len(staged) > 0 {
		return staged, err
	}
	for _, path := range []string{r.PublishPath, r.StagingPath} {
		if path == "" {
			continue
		}
		p, err := s.place(ctx, r.VolumeID, path)
		if err == nil {
			return []*stageRecord{p.record}, nil
		}
		if !errors.Is(err, fault.NotFound) {
			return nil, err
		}
	}
	return nil, fault.New(fault.NotFound, "volume %s is neither staged nor published on this node", r.VolumeID)
}

// targetHealth looks at the session with the volume's target.
func (s *Service) targetHealth(ctx context.Context, list *conditions, r *stageRecord) (reachable bool, err error) {
	a, err := s.attacher(r.Protocol)
	if err != nil {
		return false, err
	}
	err = a.Reachable(ctx, r.Target)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fault.Precondition):
		list.add(Inaccessible, "NotAttached", "%v: unpublish the volume and stage it again", err)
	case errors.Is(err, fault.Unavailable):
		list.add(Inaccessible, "TargetUnreachable", "%v: its users wait until the target answers", err)
	default:
		return false, err
	}
	return false, nil
}

// publicationHealth looks whether what was published at a path is still there.
func (s *Service) publicationHealth(ctx context.Context, list *conditions, r *HealthRequest) error {
	if r.PublishPath == "" {
		return nil
	}
	p, err := s.records.publish(r.VolumeID, r.PublishPath)
	if err != nil || p == nil {
		return err
	}
	here, err := s.Mounter.At(ctx, r.PublishPath)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(here, func(i mount.Info) bool { return s.is(i, p) })
	if at < 0 || strings.HasSuffix(here[at].Root, gone) {
		list.add(Inaccessible, "NotPublished", "the volume is no longer mounted at %s: unpublish it there and publish it again", r.PublishPath)
	}
	return nil
}

// filesystemHealth looks at the volume's filesystem, wherever it is mounted. The
// filesystem of a disk that cannot be reached is not asked.
func (s *Service) filesystemHealth(ctx context.Context, list *conditions, r *stageRecord, i mount.Info, reachable bool) error {
	switch {
	case slices.Contains(i.SuperOptions, "shutdown"):
		list.add(Inaccessible, "FilesystemShutDown", "the filesystem has shut down after an error: unpublish the volume and stage it again")
	case !r.ReadOnly && readOnlyNow(i):
		list.add(Degraded, "FilesystemReadOnly", "the filesystem has become read-only after an error: unpublish the volume and stage it again")
	}
	if r.Protocol != publish.NFS {
		count, err := s.Filesystems.ErrorCount(i.Major, i.Minor)
		if err != nil {
			return err
		}
		if count > 0 {
			list.add(Degraded, "FilesystemErrors", "the filesystem has met %d errors: unstage the volume, the next stage checks it", count)
		}
	}
	if !reachable {
		return nil
	}
	silent, err := s.answers(ctx, serverOf(r.Target), i.Target)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case silent:
		list.add(Inaccessible, "ServerNotResponding", "%s does not answer: %v", serverOf(r.Target), err)
	case err != nil:
		list.add(Inaccessible, "FilesystemFailed", "the filesystem answers with an error: %v", err)
	}
	return nil
}

// answers asks the filesystem at path for an answer. It takes a part only of
// the caller's time, so that silence can be told; so does a server with too many
// questions that hang.
func (s *Service) answers(ctx context.Context, server, path string) (silent bool, err error) {
	limit := s.aliveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)*3/4)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.Operations.Do(ctx, op.Spec{What: "health of " + server, Group: questions(server)}, func(ctx context.Context) error {
		return s.Host.Alive(ctx, path)
	})
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fault.Unavailable), err
}
