package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/run"
)

// mappings removes what the host's LVM put on a zvol by itself: a node that
// made its block volume a physical volume shows its volume groups to every
// scan on the storage host. A mapping that is open is left, and named.
func (r *Releaser) mappings(ctx context.Context, device string) error {
	real, err := filepath.EvalSymlinks(device)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.removeHolders(ctx, filepath.Base(real))
}

// removeHolders removes the mappings above a block device, the topmost first.
func (r *Releaser) removeHolders(ctx context.Context, block string) error {
	holders, err := os.ReadDir(filepath.Join(r.sys, "block", block, "holders"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, h := range holders {
		dm := filepath.Join(r.sys, "block", h.Name(), "dm")
		uuid, err := os.ReadFile(filepath.Join(dm, "uuid"))
		if err != nil || !strings.HasPrefix(string(uuid), "LVM-") {
			return fmt.Errorf("%s on this host uses %s: release it", h.Name(), block)
		}
		if err := r.removeHolders(ctx, h.Name()); err != nil {
			return err
		}
		name, err := os.ReadFile(filepath.Join(dm, "name"))
		if err != nil {
			return err
		}
		// It retries for some seconds: udev may be looking.
		mapping := strings.TrimSpace(string(name))
		_, err = r.run.Run(ctx, run.Cmd{Tool: "dmsetup", Args: []string{"remove", "--retry", mapping}})
		if err != nil && strings.Contains(run.Stderr(err), "Device or resource busy") {
			return fmt.Errorf("the logical volume %s (%s) on %s is open on this host: unmount it", mapping, h.Name(), block)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
