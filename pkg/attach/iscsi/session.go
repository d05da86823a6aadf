package iscsi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// loggedIn is the state of a session that carries I/O (kernel,
// drivers/scsi/scsi_transport_iscsi.c); FAILED and FREE do not.
const loggedIn = "LOGGED_IN"

// session is one of the kernel's sessions, as sysfs shows it.
type session struct {
	id        int
	sys       string
	dir       string
	target    string
	state     string
	initiator string
}

// disk is a SCSI disk of a session.
type disk struct {
	name string // sdX
	lun  int
	// scsi is its SCSI device's directory, which holds state and vpd_pg80.
	scsi string
}

// sessions returns the sessions with the target, the oldest first. The target
// is known by its name alone: portals move, and records may be lost.
func (a *Attacher) sessions(iqn string) ([]session, error) {
	return a.sessionsWith(func(target string) bool { return target == iqn })
}

// sessionsWith returns the sessions with the targets that are wanted, the oldest
// first.
func (a *Attacher) sessionsWith(wanted func(target string) bool) ([]session, error) {
	class := filepath.Join(a.sys, "class/iscsi_session")
	entries, err := os.ReadDir(class)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the module is not loaded
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the iSCSI sessions cannot be listed: %w", err)
	}
	var found []session
	for _, e := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "session"))
		if err != nil {
			continue
		}
		dir := filepath.Join(class, e.Name())
		name, err := attribute(dir, "targetname")
		if err != nil || !wanted(name) {
			continue // ended meanwhile, or another's
		}
		s := session{id: id, sys: a.sys, dir: dir, target: name}
		s.state, _ = attribute(dir, "state")
		s.initiator, _ = attribute(dir, "initiatorname")
		found = append(found, s)
	}
	slices.SortFunc(found, func(x, y session) int { return x.id - y.id })
	return found, nil
}

// disks returns the disks of a session. A LUN of which the kernel has not
// finished to make a disk is not among them: its directory is there first, its
// number and its place in /sys/block later.
func (s session) disks() ([]disk, error) {
	dirs, err := filepath.Glob(filepath.Join(s.dir, "device/target*/*:*:*:*"))
	if err != nil {
		return nil, fmt.Errorf("list the disks of session %d: %w", s.id, err)
	}
	var found []disk
	for _, dir := range dirs {
		lun, err := lunOf(filepath.Base(dir))
		if err != nil {
			continue
		}
		blocks, err := os.ReadDir(filepath.Join(dir, "block"))
		if err != nil {
			continue
		}
		for _, b := range blocks {
			if _, err := attribute(filepath.Join(s.sys, "block", b.Name()), "dev"); err != nil {
				continue
			}
			found = append(found, disk{name: b.Name(), lun: lun, scsi: dir})
		}
	}
	return found, nil
}

// knows reports whether the kernel has found the LUN, with its disk complete
// or not.
func (s session) knows(lun int) bool {
	dirs, err := filepath.Glob(filepath.Join(s.dir, "device/target*/*:*:*:"+strconv.Itoa(lun)))
	return err == nil && len(dirs) > 0
}

// disk returns the session's disk with that LUN.
func (s session) disk(lun int) (disk, bool, error) {
	disks, err := s.disks()
	for _, d := range disks {
		if d.lun == lun {
			return d, true, err
		}
	}
	return disk{}, false, err
}

// lunOf reads the last number of HOST:CHANNEL:TARGET:LUN.
func lunOf(hctl string) (int, error) {
	parts := strings.Split(hctl, ":")
	if len(parts) != 4 {
		return 0, fmt.Errorf("%q is no SCSI address", hctl)
	}
	return strconv.Atoi(parts[3])
}

// attribute reads a sysfs attribute of one line.
func attribute(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b)), err
}
