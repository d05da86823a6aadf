package csi

import (
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// A failure that comes again is counted; another reason, another volume and a
// success are each told at once.
func TestRepeatedFailuresAreCounted(t *testing.T) {
	s := newServed(logrus.InfoLevel)
	busy := func(n int) error { return fault.New(fault.Precondition, "in use for %d s", n) }
	a, b := &csi.DeleteVolumeRequest{VolumeId: "a"}, &csi.DeleteVolumeRequest{VolumeId: "b"}
	const remove = "/csi.v1.Controller/DeleteVolume"
	var told []float64
	for n := range 100 {
		_, lines, _ := s.call(t.Context(), remove, a, answer(busy(n)))
		for _, line := range lines {
			times, _ := line["times"].(float64)
			told = append(told, times)
		}
	}
	if !slices.Equal(told, []float64{0, 2, 4, 8, 16, 32, 64}) {
		t.Errorf("told at %v", told)
	}
	if _, lines, _ := s.call(t.Context(), remove, b, answer(busy(1))); len(lines) != 1 || lines[0]["times"] != nil {
		t.Errorf("another volume: %v", lines)
	}
	if _, lines, _ := s.call(t.Context(), remove, a, answer(fault.New(fault.Precondition, "held by a backup"))); len(lines) != 1 {
		t.Errorf("another reason: %v", lines)
	}
	if _, lines, _ := s.call(t.Context(), remove, a, answer(nil)); len(lines) != 1 || lines[0]["failures"] != 1.0 {
		t.Errorf("success: %v", lines)
	}
	if _, lines, _ := s.call(t.Context(), remove, a, answer(busy(1))); len(lines) != 1 || lines[0]["times"] != nil {
		t.Errorf("after a success: %v", lines)
	}
}

func TestRepeatsAreBounded(t *testing.T) {
	var r repeats
	for n := range 3 * maxRepeats {
		r.failed(fmt.Sprint(n), 1, "why")
	}
	if len(r.last) > maxRepeats {
		t.Errorf("%d calls are remembered", len(r.last))
	}
}
