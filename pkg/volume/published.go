package volume

import (
	"net/netip"
	"sync"
)

// published remembers which addresses have a publication, so that a client's
// NFS state is only ended when the client mounts nothing else of this host. It is
// rebuilt by every reconcile and only a hint in between: a missing entry is
// made at publish, before the node can mount.
type published struct {
	mu     sync.Mutex
	byUUID map[string]use
	// fresh are the volumes that were published since a listing began.
	fresh map[string]bool
}

// use is how a volume is used, and from where.
type use struct {
	nfs       bool
	addresses []netip.Addr
}

// beginListing begins a listing of every volume.
func (p *published) beginListing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = map[string]bool{}
}

// forget drops the volumes that the listing did not show, such as one that was
// destroyed by hand, and returns them: what is deleted by a call is unpublished
// before.
func (p *published) forget(listed func(uuid string) bool) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := map[string]bool{}
	for uuid := range p.byUUID {
		if !listed(uuid) && !p.fresh[uuid] {
			delete(p.byUUID, uuid)
			gone[uuid] = true
		}
	}
	return gone
}

func (p *published) set(uuid string, u use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byUUID == nil {
		p.byUUID = map[string]use{}
	}
	if len(u.addresses) == 0 {
		delete(p.byUUID, uuid)
		return
	}
	p.byUUID[uuid] = u
	if p.fresh != nil {
		p.fresh[uuid] = true
	}
}

// nfsClients are the addresses that may have NFS state here. Who only uses disks
// has none.
func (p *published) nfsClients() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[netip.Addr]bool{}
	var list []netip.Addr
	for _, u := range p.byUUID {
		if !u.nfs {
			continue
		}
		for _, a := range u.addresses {
			if !seen[a] {
				seen[a] = true
				list = append(list, a)
			}
		}
	}
	return list
}

// has reports whether a volume has a publication.
func (p *published) has(uuid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byUUID[uuid].addresses) > 0
}
