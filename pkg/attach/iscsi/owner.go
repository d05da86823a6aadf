package iscsi

import (
	"fmt"
	"path/filepath"
	"strings"
)

// maxStack bounds how deep devices are followed down.
const maxStack = 8

// TargetOfDevice returns whose disk a block device is, or lies on: the way back
// from a mounted device to its target when nothing else is known. Partitions
// and device-mapper devices are followed down to the disk; one that lies on the
// disks of several targets belongs to none.
func (a *Attacher) TargetOfDevice(major, minor int) (iqn string, lun int, ok bool) {
	return a.target(filepath.Join(a.sys, "dev/block", fmt.Sprintf("%d:%d", major, minor)), maxStack)
}

func (a *Attacher) target(dir string, depth int) (iqn string, lun int, ok bool) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || depth == 0 {
		return "", 0, false
	}
	if iqn, lun, ok := a.targetOfPath(real); ok {
		return iqn, lun, true
	}
	slaves, err := a.names(filepath.Join(real, "slaves"))
	if err != nil {
		return "", 0, false
	}
	for _, s := range slaves {
		i, l, found := a.target(filepath.Join(real, "slaves", s), depth-1)
		if !found || (ok && (i != iqn || l != lun)) {
			return "", 0, false
		}
		iqn, lun, ok = i, l, true
	}
	return iqn, lun, ok
}

// targetOfPath reads session and LUN out of the place of a disk in sysfs:
// .../hostN/sessionN/targetH:C:T/H:C:T:L/block/sdX[/sdXN].
func (a *Attacher) targetOfPath(path string) (iqn string, lun int, ok bool) {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if !strings.HasPrefix(p, "session") || i+2 >= len(parts) || !strings.HasPrefix(parts[i+1], "target") {
			continue
		}
		lun, err := lunOf(parts[i+2])
		if err != nil {
			return "", 0, false
		}
		iqn, err := attribute(filepath.Join(a.sys, "class/iscsi_session", p), "targetname")
		return iqn, lun, err == nil && iqn != ""
	}
	return "", 0, false
}
