package main

import (
	"fmt"
	"time"
)

// ticks is the processor's time stamp counter, which an emulated processor shows too.
func ticks() uint64

// clockArgument tells the kernel how fast that counter runs. It measures that itself, against emulated timers, and on a
// busy host comes out wrong by a factor: a guest's second was a fifth of a real one.
func clockArgument() string {
	start, first := bothClocks()
	time.Sleep(50 * time.Millisecond)
	end, second := bothClocks()
	return fmt.Sprintf(" tsc=reliable tsc_early_khz=%d", (second-first)*uint64(time.Millisecond)/uint64(end.Sub(start)))
}

// bothClocks reads both at one moment: of some tries the one that was not interrupted.
func bothClocks() (at time.Time, count uint64) {
	best := uint64(1 << 63)
	for range 50 {
		before := ticks()
		now := time.Now()
		after := ticks()
		if after-before < best {
			best, at, count = after-before, now, before+(after-before)/2
		}
	}
	return at, count
}
