package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// leftovers lists what a volume could leave behind on this host: datasets of
// the pool, exports, targets, sessions, node records and mounts.
func leftovers() ([]string, error) {
	var list []string
	out, err := exec.Command("zfs", "list", "-H", "-o", "name", "-t", "all", "-r", parent).Output()
	if err == nil {
		for line := range strings.Lines(string(out)) {
			if name := strings.TrimSpace(line); name != parent {
				list = append(list, "dataset "+name)
			}
		}
	}
	for what, pattern := range map[string]string{
		"export file": "/etc/exports.d/tarn-*",
		"target":      "/sys/kernel/config/target/iscsi/iqn*",
		"backstore":   "/sys/kernel/config/target/core/iblock_*/*",
		"session":     "/sys/class/iscsi_session/*",
		"node record": "/etc/iscsi/nodes/*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			if b := filepath.Base(p); b != "hba_info" && b != "hba_mode" {
				list = append(list, what+" "+b)
			}
		}
	}
	for what, table := range map[string]string{"export": "/var/lib/nfs/etab", "mount": "/proc/self/mounts"} {
		raw, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, "tarn-demo-") && strings.Contains(line, "pvc-") || strings.Contains(line, "/staging ") || strings.Contains(line, "/target ") {
				list = append(list, what+" "+strings.Fields(line)[0])
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// nothingLeft compares with what was there before.
func nothingLeft(before []string) error {
	after, err := leftovers()
	if err != nil {
		return err
	}
	after = slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
	if len(after) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(after, ", "))
	}
	return nil
}

func hackZpool(ctx context.Context, verb string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	script := filepath.Join(filepath.Dir(self), "..", "hack", "zpool", verb)
	out, err := exec.CommandContext(ctx, script, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(script), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// cleanUp removes the pool, and the folder when it is empty.
func cleanUp(dir string) error {
	if err := hackZpool(context.Background(), "down", poolName, dir); err != nil {
		return err
	}
	// Nothing may be mounted below what is removed.
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if strings.Contains(string(raw), " "+dir) {
		return fmt.Errorf("something is still mounted below %s", dir)
	}
	return os.RemoveAll(dir)
}
