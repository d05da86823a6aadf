package node

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

func tools() *Tools {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return NewTools(run.New(log))
}

// fakeTool puts a tool in front of PATH.
func fakeTool(t *testing.T, name, body string) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestAliveAsksTheRealTool(t *testing.T) {
	h, dir := tools(), t.TempDir()
	must(t, h.Alive(t.Context(), dir))
	if err := h.Alive(t.Context(), filepath.Join(dir, "gone")); err == nil {
		t.Error("a path that does not exist is alive")
	}
}

func TestAliveAsksBothQuestions(t *testing.T) {
	// XFS that has shut down answers statfs from memory, and stat with EIO.
	fakeTool(t, "stat", `[ "$1" = --file-system ] || { echo "Input/output error" >&2; exit 1; }`)
	if err := tools().Alive(t.Context(), t.TempDir()); err == nil {
		t.Error("a filesystem that has shut down is alive")
	}
}

func TestAliveEndsWithItsContext(t *testing.T) {
	fakeTool(t, "stat", "exec sleep 600")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tools().Alive(ctx, "/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestSetReadOnlyStartsBlockdev(t *testing.T) {
	dir := t.TempDir()
	fakeTool(t, "blockdev", `echo "$*" >>`+dir+`/said; [ "$2" != /dev/broken ]`)
	h := tools()
	must(t, h.SetReadOnly(t.Context(), "/dev/sdx", true))
	must(t, h.SetReadOnly(t.Context(), "/dev/sdx", false))
	wantKind(t, h.SetReadOnly(t.Context(), "/dev/broken", true), fault.Unavailable, "/dev/broken")
	said, err := os.ReadFile(dir + "/said")
	must(t, err)
	if got, want := string(said), "--setro /dev/sdx\n--setrw /dev/sdx\n--setro /dev/broken\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.SetReadOnly(ctx, "/dev/sdx", true); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDeviceNumberIsOfBlockDevicesOnly(t *testing.T) {
	h := tools()
	for _, path := range []string{"/dev/null", t.TempDir(), "/no/such/path"} {
		if _, _, err := h.DeviceNumber(path); err == nil {
			t.Errorf("%s was taken for a block device", path)
		}
	}
}

func TestBootIDIsTheKernels(t *testing.T) {
	id, err := tools().BootID()
	if err != nil || len(id) != 36 {
		t.Errorf("got %q, %v", id, err)
	}
}
