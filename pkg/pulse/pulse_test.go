package pulse

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestALoopThatDoesNotBeatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("the sweep", time.Minute)
		for range 3 {
			time.Sleep(time.Minute)
			if err := p.Stuck(); err != nil {
				t.Fatalf("after %v: %v", time.Minute, err)
			}
			p.Beat()
		}
		time.Sleep(time.Minute + time.Second)
		if err := p.Stuck(); err == nil || !strings.Contains(err.Error(), "the sweep has made no step for 1m1s") {
			t.Errorf("got %v", err)
		}
		p.Beat()
		if err := p.Stuck(); err != nil {
			t.Errorf("it goes on: %v", err)
		}
	})
}
