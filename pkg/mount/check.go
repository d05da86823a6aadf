package mount

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Check repairs an ext filesystem that is not mounted as far as that is safe
// without a person (e2fsck -p, which fsck -a calls). XFS replays its journal
// at the mount, so nothing is done for it.
//
// Errors: fault.Precondition when a person must run fsck first;
// fault.Unavailable when the device cannot be read or the tool is missing.
func (f *Filesystems) Check(ctx context.Context, device, fsType string) error {
	if !strings.HasPrefix(fsType, "ext") {
		return nil
	}
	if err := checkDevice(device); err != nil {
		return err
	}
	out, err := f.run.Run(ctx, run.Cmd{Tool: "e2fsck", Args: []string{"-p", device}})
	// Exit codes are bits, e2fsck(8): 1 corrected, 2 corrected and reboot (only
	// for a mounted one), 4 left uncorrected, 8 operational error, 16 usage.
	code := run.ExitCode(err)
	switch {
	case err == nil, code > 0 && code < 4:
		return nil
	case contextError(err):
		return err
	case errors.Is(err, exec.ErrNotFound):
		return fault.New(fault.Unavailable, "%s cannot be checked: %w", device, err)
	}
	if strings.Contains(run.Stderr(err)+string(out), "Input/output error") {
		return fault.New(fault.Unavailable, "%s cannot be read, so it is not mounted: %w", device, err)
	}
	return fault.New(fault.Precondition, "%s is not mounted: run fsck by hand: %w: %s", device, err, lastLine(out))
}

// lastLine is the end of what a tool printed, where it says what it found.
func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	if n := strings.LastIndexByte(text, '\n'); n >= 0 {
		text = text[n+1:]
	}
	return text
}
