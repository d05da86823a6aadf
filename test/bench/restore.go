package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/test/harness"
)

// restorePrefix begins the names of the volumes that are brought back.
const restorePrefix = "restore"

// restore measures how long a starting daemon takes until every export of many
// published volumes is back, beside the configfs writes and one `exportfs -r`
// alone. The kernel has lost all of them before, as in a reboot; the files below
// /etc are there.
func (b *bench) restore(ctx context.Context, daemon *harness.Daemon) (row, error) {
	volumes := b.config.restore
	if _, err := inParallel(ctx, volumes, 16, func(ctx context.Context, i int) error { return b.published(ctx, i) }); err != nil {
		return row{}, err
	}
	daemon.Kill()
	if err := loseExports(ctx); err != nil {
		return row{}, err
	}
	bare, err := newBare(b.dir, b.parent, "iscsi", restorePrefix)
	if err != nil {
		return row{}, err
	}
	start := time.Now()
	for i := 1; i < volumes; i += 2 {
		if err := bare.targetUp(ctx, i); err != nil {
			return row{}, err
		}
	}
	if err := command(ctx, "exportfs", "-r"); err != nil {
		return row{}, err
	}
	theirs := time.Since(start)
	if err := loseExports(ctx); err != nil {
		return row{}, err
	}
	start = time.Now()
	ready := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		err := daemon.Start(ctx)
		if err != nil {
			stop() // nothing will be back
		}
		ready <- err
	}()
	err = b.whenReturned(waiting, volumes)
	ours := time.Since(start)
	if err := errors.Join(err, <-ready); err != nil {
		return row{}, err
	}
	fmt.Printf("ready %.1f s after all exports were back\n", (time.Since(start) - ours).Seconds())
	// The pool goes with all its volumes.
	daemon.Kill()
	if err := errors.Join(loseExports(ctx), forgetExports()); err != nil {
		return row{}, err
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return row{Op: "restore", Protocol: "both", Callers: 1, Volumes: volumes, P50: ms(ours), P99: ms(ours), BareP50: ms(theirs),
		Ratio: ms(ours) / ms(theirs), Calls: 1}, nil
}

// protocolOf makes every other volume a disk.
func protocolOf(i int) string { return []string{"nfs", "iscsi"}[i%2] }

func (b *bench) published(ctx context.Context, i int) error {
	name := fmt.Sprintf("%s-%d", restorePrefix, i)
	if err := b.tarn.create(ctx, protocolOf(i), name); err != nil {
		return err
	}
	return again(ctx, func(ctx context.Context) error {
		_, err := b.tarn.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: "p/" + name, NodeId: nodeID, VolumeCapability: capability(protocolOf(i))})
		return err
	})
}

// restoreTimeout bounds how long the exports may take to come back.
const restoreTimeout = 5 * time.Minute

// whenReturned waits until everything is served again.
func (b *bench) whenReturned(ctx context.Context, volumes int) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	look := time.NewTicker(500 * time.Millisecond) // a look reads a directory of hundreds
	defer look.Stop()
	for {
		targets, exports, err := served(volumes / 2)
		if err != nil || targets == volumes/2 && exports == (volumes+1)/2 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("of %d volumes %d targets and %d exports are back: %w", volumes, targets, exports, ctx.Err())
		}
	}
}

// served counts the targets and, once there may be as many as are wanted, those
// of them that are enabled, and the exports: a look has to cost little.
func served(want int) (targets, exports int, err error) {
	all, err := filepath.Glob(configfs + "/iscsi/iqn*")
	if err != nil || len(all) < want {
		return len(all), 0, err
	}
	for _, target := range all {
		enabled, err := os.ReadFile(target + "/tpgt_1/enable")
		if errors.Is(err, os.ErrNotExist) {
			continue // it is being made
		}
		if err != nil {
			return 0, 0, err
		}
		if strings.TrimSpace(string(enabled)) == "1" {
			targets++
		}
	}
	table, err := os.ReadFile("/var/lib/nfs/etab")
	if err != nil {
		return 0, 0, err
	}
	return targets, strings.Count(string(table), "/"+restorePrefix+"-"), nil
}

// loseExports takes everything away that the kernel and mountd serve.
func loseExports(ctx context.Context) error {
	targets, err := filepath.Glob(configfs + "/iscsi/iqn*")
	if err != nil {
		return err
	}
	for _, target := range targets {
		if err := write(target+"/tpgt_1/enable", "0"); err != nil {
			return err
		}
		for _, below := range []string{"/acls/*/lun_1/*", "/acls/*/lun_1", "/acls/*", "/lun/lun_1/*", "/lun/lun_1", "/np/*", ""} {
			if err := removeAll(target + "/tpgt_1" + below); err != nil {
				return err
			}
		}
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	return errors.Join(removeAll(configfs+"/core/iblock_*/*"), removeAll(configfs+"/core/iblock_*"), command(ctx, "exportfs", "-ua"))
}

// forgetExports removes the driver's files, of which `exportfs -r` makes exports.
func forgetExports() error {
	files, err := filepath.Glob("/etc/exports.d/tarn-*")
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// removeAll removes the links and directories that a pattern names; the kernel's
// own files below them go with those.
func removeAll(pattern string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() || made[filepath.Base(path)] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// made are directories that the kernel makes and removes itself.
var made = map[string]bool{"statistics": true, "alua": true, "attrib": true, "param": true, "auth": true, "fabric_statistics": true, "pr": true, "wwn": true, "action": true}
