package volume

import (
	"errors"
	"sync"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// told remembers what the log was told of each thing, so that what stays as it
// is is told once and not by each reconcile.
type told struct {
	mu    sync.Mutex
	texts map[string]string
}

// news reports whether an error is another than the last one about the same
// thing. No error is no news, and makes the next one news.
func (t *told) news(about string, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.texts, about)
		return false
	}
	text := err.Error()
	if errors.Is(err, fault.Busy) {
		text = "busy" // the text has a time in it
	}
	if t.texts == nil {
		t.texts = map[string]string{}
	}
	old, known := t.texts[about]
	t.texts[about] = text
	return !known || old != text
}
