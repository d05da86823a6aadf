package volume

import (
	"context"
	"slices"
	"sync"
)

// maxForeign is how many foreign exports one line of the log names.
const maxForeign = 20

// foreign are the exports of others that the log was told of, by protocol.
type foreign struct {
	mu   sync.Mutex
	told map[string]map[string]bool
}

// fresh returns those of a listing that the last one did not show.
func (f *foreign) fresh(protocol string, list []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string]bool{}
	var fresh []string
	for _, name := range list {
		now[name] = true
		if !f.told[protocol][name] {
			fresh = append(fresh, name)
		}
	}
	if f.told == nil {
		f.told = map[string]map[string]bool{}
	}
	f.told[protocol] = now
	return fresh
}

// reportForeign tells, once, of targets and exports that are not this
// instance's. They are never touched.
func (s *Service) reportForeign(ctx context.Context) {
	for _, protocol := range s.Protocols() {
		e, ok := s.cfg.Exporters[protocol].(Others)
		if !ok {
			continue
		}
		others, err := e.Others(ctx)
		if err != nil {
			if s.told.news("foreign "+protocol, err) {
				s.cfg.Log.WithError(err).WithField("protocol", protocol).Error("the kernel's exports cannot be read")
			}
			continue
		}
		names := make([]string, len(others))
		for i, o := range others {
			names[i] = o.Name
		}
		slices.Sort(names)
		if fresh := s.foreign.fresh(protocol, names); len(fresh) > 0 {
			s.cfg.Log.WithField("protocol", protocol).WithField("count", len(fresh)).WithField("exports", fresh[:min(len(fresh), maxForeign)]).
				Info("exports that others made are left alone")
		}
	}
}
