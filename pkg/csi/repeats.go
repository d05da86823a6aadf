package csi

import (
	"math/bits"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/grpc/codes"
)

// maxRepeats bounds how many failing calls are remembered. Those that are
// forgotten are logged in full again.
const maxRepeats = 1024

// repeats counts how often a call has failed in the same way without a success
// or another failure in between, so that an orchestrator which retries for hours
// does not fill the log. It is for any number of goroutines.
type repeats struct {
	mu   sync.Mutex
	last map[string]failure
}

type failure struct {
	code   codes.Code
	reason string
	count  int
}

// failed notes a failure of a call and returns how often it has failed so.
// Numbers in the reason, such as an age, make no other failure.
func (r *repeats) failed(call string, code codes.Code, reason string) int {
	reason = strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}
		return c
	}, reason)
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.last[call]
	if f.code != code || f.reason != reason {
		f = failure{code: code, reason: reason}
	}
	f.count++
	r.note(call, f)
	return f.count
}

func (r *repeats) note(call string, f failure) {
	if r.last == nil {
		r.last = map[string]failure{}
	}
	if _, known := r.last[call]; !known && len(r.last) >= maxRepeats {
		clear(r.last)
	}
	r.last[call] = f
}

// succeeded forgets the failures of a call and returns how many there were.
func (r *repeats) succeeded(call string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.last[call].count
	delete(r.last, call)
	return n
}

// told reports whether the nth failure of a kind is worth a line: the first, the
// second, the fourth and so on.
func told(n int) bool { return bits.OnesCount(uint(n)) == 1 }
