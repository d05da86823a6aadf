//go:build faults

package step

import (
	"context"
	"os"
	"sync/atomic"
)

// Hook is called at each side effect. An error keeps it from happening; else the
// function that it returns is called at its end.
type Hook func(ctx context.Context, kind Kind, name string) (end func(), err error)

var hook atomic.Pointer[Hook]

// Set makes every side effect of this process pass h; nil ends that.
func Set(h Hook) {
	if h == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&h)
}

// DirVariable names the folder with the plan of a process.
const DirVariable = "TARN_FAULTS"

func init() {
	if dir := os.Getenv(DirVariable); dir != "" {
		Set((&process{dir: dir}).begin)
	}
}

// Begin marks the begin of a side effect, and the function that it returns the
// end.
func Begin(ctx context.Context, kind Kind, name string) (end func(), err error) {
	if h := hook.Load(); h != nil {
		return (*h)(ctx, kind, name)
	}
	return func() {}, nil
}
