package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// State lists everything that volumes leave on this host while they are used,
// and must not leave afterwards: datasets below the pool's parent, exports,
// targets, backstores, sessions, node records, and mounts below dir.
func State(p Pool, dir string) ([]string, error) {
	var list []string
	out, err := exec.Command("zfs", "list", "-H", "-o", "name", "-t", "all", "-r", p.Parent()).Output()
	if err == nil {
		for line := range strings.Lines(string(out)) {
			name := strings.TrimSpace(line)
			if below, ok := strings.CutPrefix(name, p.Parent()+"/"); ok && !Container(below) {
				list = append(list, "dataset "+name)
			}
		}
	}
	for what, pattern := range map[string]string{
		"export file":   "/etc/exports.d/tarn-*",
		"target":        "/sys/kernel/config/target/iscsi/iqn*",
		"backstore":     "/sys/kernel/config/target/core/iblock_*",
		"session":       "/sys/class/iscsi_session/*",
		"node record":   "/etc/iscsi/nodes/*",
		"stage record":  filepath.Join(dir, "state/node/*.json"),
		"kept CHAP":     filepath.Join(dir, "state/chap/*"),
		"device-mapper": "/dev/mapper/[^c]*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			list = append(list, what+" "+filepath.Base(path))
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
			if strings.Contains(line, dir) {
				list = append(list, what+" "+strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// Container reports that a dataset below the parent is not of a volume: once
// made, the place for deleted volumes that have dependents stays, and so does
// that for unfinished copies.
func Container(below string) bool { return below == ".tombstones" || below == ".incoming" }

// NothingLeft reports what is there now and was not before.
func NothingLeft(p Pool, dir string, before []string) error {
	after, err := State(p, dir)
	if err != nil {
		return err
	}
	after = slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
	if len(after) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(after, "; "))
	}
	return nil
}
