package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bare does the same work with the fewest commands that do it: no request is
// checked, nothing is read back, and nothing is promised after a crash.
type bare struct {
	dir, parent, protocol, prefix string
}

func newBare(dir, parent, protocol, prefix string) (*bare, error) {
	b := &bare{dir: filepath.Join(dir, "bare"), parent: parent, protocol: protocol, prefix: prefix}
	return b, os.MkdirAll(b.dir, 0o755)
}

func (b *bare) dataset(i int) string { return fmt.Sprintf("%s/%s-%d", b.parent, b.prefix, i) }
func (b *bare) clone(i int) string   { return fmt.Sprintf("%s/%s-c-%d", b.parent, b.prefix, i) }

// mark is what a publication is stored as.
const mark = "bare:node.node-1"

// facts are user properties as many and as long as the driver's.
func facts() []string {
	var args []string
	for _, name := range []string{"name", "uuid", "protocol", "size"} {
		args = append(args, "-o", "bare:"+name+"=0123456789abcdef")
	}
	return append(args, "-o", "bare:request="+strings.Repeat("0123456789abcdef", 12))
}

func command(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func zfs(ctx context.Context, args ...string) error {
	return command(ctx, append([]string{"zfs"}, args...)...)
}

func (b *bare) steps() []step {
	return []step{
		{"create", b.create},
		{"publish", func(ctx context.Context, i int) error {
			if err := errors.Join(zfs(ctx, "get", "-Hp", "all", b.dataset(i)), zfs(ctx, "set", mark+"="+nodeID, b.dataset(i))); err != nil {
				return err
			}
			if b.protocol == "nfs" {
				return b.exportNFS(ctx, i)
			}
			return b.targetUp(ctx, i)
		}},
		{"unpublish", func(ctx context.Context, i int) error {
			if err := errors.Join(zfs(ctx, "get", "-Hp", "all", b.dataset(i)), zfs(ctx, "inherit", mark, b.dataset(i))); err != nil {
				return err
			}
			if b.protocol == "nfs" {
				return errors.Join(os.Remove(b.exportFile(i)), command(ctx, "exportfs", "-u", "127.0.0.1:"+b.mountpoint(i)))
			}
			return b.targetDown(i)
		}},
		{"snapshot", func(ctx context.Context, i int) error {
			return errors.Join(zfs(ctx, "get", "-Hp", "all", b.dataset(i)),
				zfs(ctx, "snapshot", "-o", "bare:name=0123456789abcdef", "-o", "bare:size=0123456789", "-o", "bare:created=0123456789", b.dataset(i)+"@s"))
		}},
		{"clone", func(ctx context.Context, i int) error {
			args := append([]string{"clone"}, facts()...)
			if b.protocol == "nfs" {
				args = append(args, "-o", "canmount=noauto", "-o", "refquota="+fmt.Sprint(volumeBytes))
			}
			if err := errors.Join(zfs(ctx, "get", "-Hp", "all", b.dataset(i)+"@s"), zfs(ctx, append(args, b.dataset(i)+"@s", b.clone(i))...)); err != nil {
				return err
			}
			return b.mount(b.clone(i))
		}},
		{"", func(ctx context.Context, i int) error {
			return errors.Join(b.destroy(ctx, b.clone(i)), zfs(ctx, "destroy", b.dataset(i)+"@s"))
		}},
		{"delete", func(ctx context.Context, i int) error {
			return errors.Join(zfs(ctx, "get", "-Hp", "all", b.dataset(i)), b.destroy(ctx, b.dataset(i)))
		}},
	}
}

func (b *bare) create(ctx context.Context, i int) error {
	args := append([]string{"create"}, facts()...)
	if b.protocol == "iscsi" {
		return zfs(ctx, append(args, "-s", "-o", "volmode=dev", "-o", "volblocksize=16384", "-V", fmt.Sprint(volumeBytes), b.dataset(i))...)
	}
	args = append(args, "-u", "-o", "refquota="+fmt.Sprint(volumeBytes), "-o", "setuid=off", "-o", "devices=off", "-o", "sharenfs=off", b.dataset(i))
	if err := zfs(ctx, args...); err != nil {
		return err
	}
	return b.mount(b.dataset(i))
}

func (b *bare) mountpoint(i int) string { return b.at(b.dataset(i)) }

func (b *bare) at(dataset string) string { return filepath.Join(b.dir, filepath.Base(dataset)) }

func (b *bare) mount(dataset string) error {
	if b.protocol == "iscsi" {
		return nil
	}
	if err := os.Mkdir(b.at(dataset), 0o755); err != nil {
		return err
	}
	return unix.Mount(dataset, b.at(dataset), "zfs", unix.MS_NOSUID|unix.MS_NODEV, "zfsutil")
}

// destroy waits, as everybody must, while something looks at the dataset for a
// moment: udev at a zvol, the kernel's export cache at a filesystem.
func (b *bare) destroy(ctx context.Context, dataset string) error {
	if b.protocol == "nfs" {
		if err := whileBusy(ctx, func() error { return unix.Unmount(b.at(dataset), 0) }); err != nil {
			return err
		}
		if err := os.Remove(b.at(dataset)); err != nil {
			return err
		}
	}
	return whileBusy(ctx, func() error { return zfs(ctx, "destroy", dataset) })
}

func whileBusy(ctx context.Context, do func() error) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := do()
		if err == nil || !errors.Is(err, unix.EBUSY) && !strings.Contains(err.Error(), "busy") {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		}
	}
}

func (b *bare) exportFile(i int) string {
	return filepath.Join("/etc/exports.d", fmt.Sprintf("%s-%d.exports", b.prefix, i))
}

func (b *bare) exportNFS(ctx context.Context, i int) error {
	const options = "rw,sync,no_subtree_check,mountpoint,sec=sys,no_root_squash"
	line := fmt.Sprintf("%s 127.0.0.1(%s)\n", b.mountpoint(i), options)
	if err := os.MkdirAll("/etc/exports.d", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(b.exportFile(i), []byte(line), 0o644); err != nil {
		return err
	}
	return command(ctx, "exportfs", "-o", options, "127.0.0.1:"+b.mountpoint(i))
}
