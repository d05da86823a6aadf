package volume

import (
	"sync"

	"github.com/tarn-csi/tarn/pkg/ident"
)

// touched notes which volumes an RPC has worked on since the last listing
// began, so that a reconcile believes its listing for all others and reads only
// these again. A note is made before the RPC lets go of the volume's lock, under
// which the reconcile asks.
type touched struct {
	mu  sync.Mutex
	ids map[ident.VolumeID]bool
}

func (t *touched) add(id ident.VolumeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids != nil {
		t.ids[id] = true
	}
}

// reset begins a new listing.
func (t *touched) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids = map[ident.VolumeID]bool{}
}

func (t *touched) has(id ident.VolumeID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[id]
}
