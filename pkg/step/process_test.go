//go:build faults

package step

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func plans(t *testing.T) (set func(text string), dir string) {
	dir = t.TempDir()
	Set((&process{dir: dir}).begin)
	t.Cleanup(func() { Set(nil) })
	return func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "plan"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}, dir
}

func effect(ctx context.Context, done *int) error {
	return Do(ctx, File, "write", func() error { *done++; return nil })
}

func TestAStepIsCountedAndFailsOnlyAsThePlanSays(t *testing.T) {
	set, dir := plans(t)
	done := 0
	if err := effect(t.Context(), &done); err != nil || done != 1 {
		t.Fatalf("without a plan: %v", err)
	}
	for round := range 2 { // another id counts anew
		set([]string{"a", "b"}[round] + " " + Fail + " 2")
		var errs []error
		for range 3 {
			errs = append(errs, effect(t.Context(), &done))
		}
		if errs[0] != nil || !errors.Is(errs[1], ErrInjected) || errs[2] != nil {
			t.Errorf("round %d: %v", round, errs)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || done != 5 || string(log) != strings.Repeat("file write\n", 6) {
		t.Errorf("%d effects, %v, the log is\n%s", done, err, log)
	}
}

func TestAStepThatHangsEndsWithItsContextOrThePlan(t *testing.T) {
	set, _ := plans(t)
	done := 0
	set("a " + Hang + " 1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := effect(ctx, &done); !errors.Is(err, context.DeadlineExceeded) || done != 0 {
		t.Errorf("%v", err)
	}
	set("b " + Hang + " 1")
	ended := make(chan error)
	go func() { ended <- effect(t.Context(), &done) }()
	set("c " + Count + " 0")
	if err := <-ended; err != nil || done != 1 {
		t.Errorf("%v", err)
	}
}
