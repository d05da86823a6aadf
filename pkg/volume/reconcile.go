package volume

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/op"
)

// startInterval is the pace of Run until everything is up; then Config.Rest is,
// as a safety net.
const startInterval = time.Second

const (
	// reconcileWait is how long an RPC and a reconcile wait for each other on
	// one volume.
	reconcileWait = 5 * time.Second
	// reconcileTimeout bounds the work on one volume, such as the wait for a
	// zvol whose key is not loaded.
	reconcileTimeout = 20 * time.Second
	// reconcileWorkers is how many volumes are worked on at once, so that one
	// that waits does not delay the others.
	reconcileWorkers = 8
)

// Run opens the pools and keeps the kernel's exports equal to the
// publications, until ctx ends. A pool that is not there does not stop the
// others.
func (s *Service) Run(ctx context.Context) {
	for {
		err := s.Reconcile(ctx)
		s.mu.Lock()
		s.started, s.notReady = true, err
		s.mu.Unlock()
		pause := s.cfg.Rest
		if err != nil {
			s.cfg.Log.WithError(err).Warn("not everything is up")
			pause = startInterval
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Ready reports why not every pool can be used, from the last look of Run; it
// never waits.
func (s *Service) Ready() error {
	s.mu.Lock()
	started, err := s.started, s.notReady
	s.mu.Unlock()
	if !started {
		return fault.New(fault.Unavailable, "the driver is starting")
	}
	return err
}

// Reconcile does one round. The error names what keeps the driver from being
// ready: a pool or a protocol's server. A single broken volume is logged and
// does not.
func (s *Service) Reconcile(ctx context.Context) error {
	var errs []error
	for _, protocol := range s.Protocols() {
		if err := s.cfg.Exporters[protocol].Ready(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	known := map[string]*record{}
	complete := true
	s.touched.reset()
	s.published.beginListing()
	for _, name := range s.order {
		if err := s.reconcilePool(ctx, s.pools[name], known); err != nil {
			errs = append(errs, err)
			complete = false
		}
	}
	// Exports of volumes that are gone can be told from those of a pool that
	// is not imported only when every pool was read.
	if complete {
		s.published.forget(func(uuid string) bool { return known[uuid] != nil })
		s.removeStray(ctx, known)
	}
	return errors.Join(errs...)
}

// reconcilePool opens the pool and exports its published volumes, and adds all
// its volumes to known, by uuid.
func (s *Service) reconcilePool(ctx context.Context, p *pool, known map[string]*record) error {
	if err := s.openPool(ctx, p); err != nil {
		return err
	}
	p.index.begin()
	records, err := s.records(ctx, p.cfg.Name)
	if err != nil {
		return err
	}
	hidden, err := s.readIndex(ctx, p, records)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(reconcileWorkers)
	for _, r := range records {
		known[r.uuid] = r
		if r.err != nil {
			s.log(r.id).WithError(r.err).Error("a volume is not usable")
			continue
		}
		// One that is remembered as published lost its publications otherwise
		// than by a call, or gains them now: its lock decides.
		if len(r.publications) == 0 && !s.published.has(r.uuid) {
			continue
		}
		group.Go(func() error {
			if err := s.reconcileVolume(ctx, r); err != nil {
				s.log(r.id).WithError(err).Error("a published volume is not exported")
			}
			return nil // one broken volume does not stop the rest
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.sweep(ctx, p, hidden)
	return nil
}

// reconcileVolume brings one volume's export to what ZFS says. r is what the
// listing said; it is read again if an RPC worked on the volume since.
func (s *Service) reconcileVolume(ctx context.Context, r *record) error {
	return s.ops.Do(ctx, op.Spec{
		What: "reconcile", Keys: []string{r.id.String()}, Group: "pool " + r.id.Pool,
		Detached: true, Timeout: reconcileTimeout, Wait: reconcileWait, Background: true,
	}, func(ctx context.Context) error {
		p, err := s.pool(r.id.Pool)
		if err != nil {
			return err
		}
		if s.touched.has(r.id) {
			if p, r, err = s.find(ctx, r.id); err != nil {
				return okIfUnknown(err)
			}
		}
		s.remember(r)
		e := s.cfg.Exporters[r.params.Protocol]
		if e == nil {
			return nil
		}
		return s.expose(ctx, p, r, e)
	})
}

// removeStray takes down exports of this instance that belong to no volume, or
// to one without publications.
func (s *Service) removeStray(ctx context.Context, known map[string]*record) {
	for _, protocol := range s.Protocols() {
		e := s.cfg.Exporters[protocol]
		list, err := e.List(ctx)
		if err != nil {
			s.cfg.Log.WithError(err).WithField("protocol", protocol).Error("the kernel's exports cannot be read")
			continue
		}
		for _, st := range list {
			if s.published.has(st.UUID) || known[st.UUID] != nil && known[st.UUID].err != nil {
				continue
			}
			entry := s.cfg.Log.WithFields(logrus.Fields{"protocol": protocol, "uuid": st.UUID})
			if err := s.removeExport(ctx, e, st.UUID, known); err != nil {
				entry.WithError(err).Error("an export that no volume wants could not be removed")
				continue
			}
			entry.Warn("removed an export that no volume wants")
		}
	}
}

// removeExport removes a stray export, under its volume's lock where it has one.
func (s *Service) removeExport(ctx context.Context, e export.Exporter, uuid string, known map[string]*record) error {
	key := "export " + uuid
	if r := known[uuid]; r != nil {
		key = r.id.String()
	}
	return s.ops.Do(ctx, op.Spec{
		What: "remove stray export", Keys: []string{key},
		Detached: true, Timeout: reconcileTimeout, Wait: reconcileWait, Background: true,
	}, func(ctx context.Context) error {
		if s.published.has(uuid) {
			return nil
		}
		return e.Remove(ctx, uuid)
	})
}

func (s *Service) log(id ident.VolumeID) logrus.FieldLogger {
	return s.cfg.Log.WithField("volume", id.String())
}
