package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Pool is a pool on a file in a folder.
type Pool struct{ Name, Dir string }

// Parent is the dataset under which a daemon makes volumes.
func (p Pool) Parent() string { return p.Name + "/csi" }

// Up makes the pool.
func (p Pool) Up(ctx context.Context) error { return p.script(ctx, "up") }

// Down destroys it with everything in it; one that is not there is down.
func (p Pool) Down(ctx context.Context) error { return p.script(ctx, "down") }

func (p Pool) script(ctx context.Context, verb string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "zpool", verb), p.Name, p.Dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("hack/zpool/%s: %w: %s", verb, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// RemoveDir removes a folder in which nothing is mounted any more.
func RemoveDir(dir string) error {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if strings.Contains(string(raw), " "+dir) {
		return fmt.Errorf("something is still mounted below %s", dir)
	}
	return os.RemoveAll(dir)
}
