package volume

import (
	"maps"
	"slices"
	"sync"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// index remembers where a pool's snapshots are, which volumes wait as
// tombstones, and which volumes are clones of which, so that no call has to
// scan the pool. It is read from the pool by every reconcile and kept up by
// every call in between. It is a hint: what it says is verified by one read
// before it is believed, and what it does not say costs one read.
type index struct {
	mu sync.Mutex
	// loaded is false until the pool was read once.
	loaded    bool
	snapshots memory[ident.SnapshotID, place]
	// names are the snapshots by the name that the orchestrator gave, members of
	// groups left out.
	names memory[string, ident.SnapshotID]
	// graves are the tombstones by their record's key, and origins the uuids of
	// the volumes from which linked clones were made by the clone's uuid. A
	// tombstone can be a clone itself.
	graves  memory[string, *record]
	origins memory[string, string]
	// copies are the volumes that were made from a source, so that the repeat of a
	// call is known as one before anything is made again.
	copies memory[ident.VolumeID, bool]
	// expected are the volumes for which a copy was begun.
	expected memory[ident.VolumeID, bool]
	// copying are the copies that run now.
	copying map[ident.VolumeID]func()
	// waiting are the uuids of hidden snapshots that ZFS will destroy itself.
	waiting map[string]bool
}

// place is where a snapshot is.
type place struct {
	// dataset is what it is a snapshot of, a volume or a tombstone.
	dataset string
	// uuid is the volume's.
	uuid string
	// group is the component of the group that it is a member of.
	group string
}

// memory is a map that a listing replaces, without undoing what calls have
// changed since the listing began.
type memory[K comparable, V any] struct {
	now   map[K]V
	since map[K]bool
}

func (m *memory[K, V]) begin() { m.since = map[K]bool{} }

func (m *memory[K, V]) set(key K, value V) {
	if m.now == nil {
		m.now = map[K]V{}
	}
	m.now[key] = value
	m.note(key)
}

func (m *memory[K, V]) drop(key K) {
	delete(m.now, key)
	m.note(key)
}

func (m *memory[K, V]) note(key K) {
	if m.since != nil {
		m.since[key] = true
	}
}

func (m *memory[K, V]) replace(listed map[K]V) {
	for key := range m.since {
		if value, ok := m.now[key]; ok {
			listed[key] = value
		} else {
			delete(listed, key)
		}
	}
	m.now, m.since = listed, nil
}

// contents is what a listing of the pool says.
type contents struct {
	snapshots map[ident.SnapshotID]place
	names     map[string]ident.SnapshotID
	graves    map[string]*record
	origins   map[string]string
	copies    map[ident.VolumeID]bool
	expected  map[ident.VolumeID]bool
}

// begin is called before a listing begins.
func (x *index) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snapshots.begin()
	x.names.begin()
	x.graves.begin()
	x.origins.begin()
	x.copies.begin()
	x.expected.begin()
}

// load takes over what the listing said.
func (x *index) load(c contents) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snapshots.replace(c.snapshots)
	x.names.replace(c.names)
	x.graves.replace(c.graves)
	x.origins.replace(c.origins)
	x.copies.replace(c.copies)
	x.expected.replace(c.expected)
	x.loaded = true
}

// snapshot returns where a snapshot was last seen; false when it was not seen.
// fault.Unavailable before the pool was read.
func (x *index) snapshot(pool string, id ident.SnapshotID) (place, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.loaded {
		return place{}, false, notLoaded(pool)
	}
	at, ok := x.snapshots.now[id]
	return at, ok, nil
}

func notLoaded(pool string) error {
	return fault.New(fault.Unavailable, "pool %q: its snapshots have not been read yet", pool)
}

// snapshotsByDataset counts the snapshots that can be asked for.
func (x *index) snapshotsByDataset() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	counts := map[string]int{}
	for _, at := range x.snapshots.now {
		counts[at.dataset]++
	}
	return counts
}

// tombstones returns the deleted volumes that are still there.
func (x *index) tombstones() []*record {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.graves.now))
}

// named returns the snapshot that has a name.
func (x *index) named(component string) (ident.SnapshotID, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok := x.names.now[component]
	return id, ok
}

// members returns the snapshots of a group. fault.Unavailable before the pool
// was read.
func (x *index) members(pool, group string) (map[ident.SnapshotID]place, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.loaded {
		return nil, notLoaded(pool)
	}
	found := map[ident.SnapshotID]place{}
	for id, at := range x.snapshots.now {
		if at.group == group {
			found[id] = at
		}
	}
	return found, nil
}

func (x *index) addSnapshot(id ident.SnapshotID, at place) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snapshots.set(id, at)
	if at.group == "" {
		x.names.set(id.Component, id)
	}
}

func (x *index) dropSnapshot(id ident.SnapshotID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snapshots.drop(id)
	if x.names.now[id.Component] == id {
		x.names.drop(id.Component)
	}
}

// addClone notes a linked clone.
func (x *index) addClone(id ident.VolumeID, uuid, origin string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.origins.set(uuid, origin)
	x.copies.set(id, true)
}

// copyBegins notes that a call makes a copy that is to become a volume; cancel
// ends it.
func (x *index) copyBegins(id ident.VolumeID, cancel func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.copying == nil {
		x.copying = map[ident.VolumeID]func(){}
	}
	x.copying[id] = cancel
	x.expected.set(id, true)
}

// copyEnds notes that the call is over, whatever it has left.
func (x *index) copyEnds(id ident.VolumeID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.copying, id)
	x.expected.note(id)
}

// cancelCopy ends a call that makes a copy, if there is one.
func (x *index) cancelCopy(id ident.VolumeID) {
	x.mu.Lock()
	cancel := x.copying[id]
	x.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// copyDropped notes that nothing of a copy is left.
func (x *index) copyDropped(id ident.VolumeID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expected.drop(id)
}

// copyArrived notes that a copy is a volume.
func (x *index) copyArrived(id ident.VolumeID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expected.drop(id)
	x.copies.set(id, true)
}

// expects reports whether a copy that is to become a volume may be there.
func (x *index) expects(id ident.VolumeID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.loaded || x.expected.now[id] || x.copying[id] != nil
}

// needsForCopy reports whether a snapshot of that name may be needed by a copy.
func (x *index) needsForCopy(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.expected.now {
		if copyName(id) == name {
			return true
		}
	}
	for id := range x.copying {
		if copyName(id) == name {
			return true
		}
	}
	return !x.loaded
}

// whereabouts is the tombstone of a volume, or else where it was.
func (x *index) whereabouts(uuid, was string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.graves.now[uuid]; r != nil {
		return r.dataset.Name
	}
	return was
}

// isCopy reports whether a volume was made from a source.
func (x *index) isCopy(id ident.VolumeID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.copies.now[id]
}

// bury notes that a volume became the tombstone r, and its snapshots with it.
func (x *index) bury(from string, r *record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, at := range x.snapshots.now {
		if at.dataset == from {
			at.dataset = r.dataset.Name
			x.snapshots.set(id, at)
		}
	}
	x.graves.set(r.key(), r)
	x.copies.drop(r.id)
}

// destroyed notes that a volume is gone, and returns the uuid of the volume that
// it was a linked clone of; "" for none.
func (x *index) destroyed(r *record) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.copies.drop(r.id)
	return x.forget(r.key())
}

// reaped is destroyed for a tombstone, whose name another volume may have.
func (x *index) reaped(key string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.forget(key)
}

// forget is called with x.mu held.
func (x *index) forget(key string) string {
	origin := x.origins.now[key]
	x.graves.drop(key)
	x.origins.drop(key)
	return origin
}

// free returns the tombstone of that uuid if nothing is known to depend on it.
func (x *index) free(uuid string) (*record, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.graves.now[uuid]
	return r, ok && !x.needed(uuid)
}

// freeGraves returns the datasets of all tombstones on which nothing is known to
// depend, by their keys.
func (x *index) freeGraves() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	free := map[string]string{}
	for key, r := range x.graves.now {
		if !x.needed(key) {
			free[key] = r.dataset.Name
		}
	}
	return free
}

// needed reports whether snapshots or clones of a volume are known. x.mu is
// held.
func (x *index) needed(uuid string) bool {
	for _, at := range x.snapshots.now {
		if at.uuid == uuid {
			return true
		}
	}
	for _, origin := range x.origins.now {
		if origin == uuid {
			return true
		}
	}
	return false
}

// isClone reports whether a volume or a tombstone is a linked clone.
func (x *index) isClone(uuid string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.origins.now[uuid]
	return ok
}

// waits reports whether a hidden snapshot was left to ZFS.
func (x *index) waits(uuid string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.waiting[uuid]
}

// leave notes that a hidden snapshot was left to ZFS.
func (x *index) leave(uuid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.waiting == nil {
		x.waiting = map[string]bool{}
	}
	x.waiting[uuid] = true
}

// gone forgets the hidden snapshots that a listing did not show.
func (x *index) gone(listed map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uuid := range x.waiting {
		if !listed[uuid] {
			delete(x.waiting, uuid)
		}
	}
}
