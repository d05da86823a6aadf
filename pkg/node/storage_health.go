package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/publish"
)

// StorageHealth says what is wrong between this node and its storage, beyond a
// single volume: a protocol that cannot be used here, portals with which every
// session is lost, or some, and NFS servers that do not answer. Only servers of
// volumes that are staged here are known. It ends with ctx.
func (s *Service) StorageHealth(ctx context.Context) ([]Condition, error) {
	var list conditions
	for _, protocol := range s.protocols() {
		err := s.Attachers[protocol].Ready(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			list.add(Inaccessible, strings.ToUpper(protocol)+"NotReady", "%v", err)
		}
	}
	if err := s.records.check(); err != nil {
		list.add(Degraded, "StateNotWritable", "%v", err)
	}
	staged, err := s.records.stages("")
	if err != nil {
		return nil, err
	}
	if err := s.sessionsHealth(ctx, &list, staged); err != nil {
		return nil, err
	}
	return list, s.serversHealth(ctx, &list, staged)
}

// sessionsHealth counts the lost sessions of each portal.
func (s *Service) sessionsHealth(ctx context.Context, list *conditions, staged []*stageRecord) error {
	type count struct{ all, lost int }
	portals := map[string]*count{}
	for _, r := range staged {
		a := s.Attachers[r.Protocol]
		if r.Protocol == publish.NFS || a == nil {
			continue
		}
		err := a.Reachable(ctx, r.Target)
		if err != nil && !errors.Is(err, fault.Unavailable) {
			if errors.Is(err, fault.Precondition) {
				continue // not attached any more, as after a reboot
			}
			return err
		}
		c := portals[serverOf(r.Target)]
		if c == nil {
			c = &count{}
			portals[serverOf(r.Target)] = c
		}
		c.all++
		if err != nil {
			c.lost++
		}
	}
	for _, portal := range slices.Sorted(maps.Keys(portals)) {
		switch c := portals[portal]; c.lost {
		case 0:
		case c.all:
			list.add(Inaccessible, "PortalUnreachable", "every session with %s is lost (%d)", portal, c.lost)
		default:
			list.add(Degraded, "SessionsLost", "%d of %d sessions with %s are lost", c.lost, c.all, portal)
		}
	}
	return nil
}

// serversHealth asks every NFS server, all at once, by one of its mounts.
func (s *Service) serversHealth(ctx context.Context, list *conditions, staged []*stageRecord) error {
	table, err := s.Mounter.Mounts(ctx)
	if err != nil {
		return err
	}
	paths := map[string]string{}
	for _, r := range staged {
		at := slices.IndexFunc(table, func(i mount.Info) bool { return r.Protocol == publish.NFS && s.shows(i, r) })
		if at >= 0 {
			paths[r.Target.Server] = table[at].Target
		}
	}
	var mu sync.Mutex
	silent := map[string]error{}
	var all sync.WaitGroup
	for server, path := range paths {
		all.Go(func() {
			if quiet, err := s.answers(ctx, server, path); quiet {
				mu.Lock()
				silent[server] = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, server := range slices.Sorted(maps.Keys(silent)) {
		list.add(Inaccessible, "ServerNotResponding", "NFS server %s does not answer: %v", server, silent[server])
	}
	return nil
}
