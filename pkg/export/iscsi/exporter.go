// Package iscsi exports zvols over iSCSI with the kernel's own target (LIO),
// by configfs alone: no targetcli, no saved configuration, no child process.
//
// A volume has one target with the portal group tpgt_1, one LUN and one
// backstore; each grant is an ACL. What is wanted comes from the caller and
// what is there from the kernel, so every call repairs what an earlier one
// left behind. It does not decide who may have a volume.
package iscsi

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/run"
)

// LUN is the number under which a volume is found. It is never 0: a LUN 0 that
// is taken from a live session reads as zeros instead of failing, since the
// target shows a virtual LUN 0 of its own in its place.
const LUN = 1

// defaultDeviceWait bounds the wait for a device where the caller's context
// does not end earlier.
const defaultDeviceWait = 30 * time.Second

// defaultAnnounceAfter is longer than udev takes for a link where it makes one.
const defaultAnnounceAfter = time.Second

// defaultRemakeAfter is far beyond what udev takes for a link on a busy host.
const defaultRemakeAfter = 10 * time.Second

// Runner starts child processes; *run.Runner is one.
type Runner interface {
	Run(ctx context.Context, c run.Cmd) ([]byte, error)
}

// Config is what an Exporter works with. FS, Naming, LockPath and Log are
// needed.
type Config struct {
	FS     configfs.FS
	Naming ident.Naming
	// LockPath is the lock file of all processes that write configfs, such as
	// configfs.DefaultLockPath.
	LockPath string
	Log      logrus.FieldLogger
	// Runner loads kernel modules in Ready; nil loads none.
	Runner Runner
	// Passive lets Ready say what is missing and mend nothing.
	Passive bool
	// Device looks at a device; nil is HostDevice.
	Device func(path string) (Device, error)
	// DeviceWait bounds the wait for a device; zero is 30 s.
	DeviceWait time.Duration
	// Remake makes the device at path anew, of which nothing is to be seen; nil
	// only waits. It is called once in a wait, after RemakeAfter; zero is 10 s.
	Remake      func(ctx context.Context, path string) error
	RemakeAfter time.Duration
	// Announce has udev look again at devices that it did not name; nil only
	// waits. It is called after AnnounceAfter; zero is 1 s.
	Announce      func() error
	AnnounceAfter time.Duration
	// UdevIdle reports whether udev has nothing to do; nil asks this host's.
	UdevIdle func() bool
}

// Exporter implements export.Exporter. It is safe for concurrent use, also with
// other Exporters on the same host.
type Exporter struct {
	fs            configfs.FS
	naming        ident.Naming
	lock          *configfs.Lock
	log           logrus.FieldLogger
	runner        Runner
	passive       bool
	device        func(path string) (Device, error)
	deviceWait    time.Duration
	remake        func(ctx context.Context, path string) error
	remakeAfter   time.Duration
	announce      func() error
	udevIdle      func() bool
	announceAfter time.Duration
}

var _ export.Exporter = (*Exporter)(nil)

// New returns an Exporter. It touches nothing.
func New(c Config) *Exporter {
	e := &Exporter{
		fs:            c.FS,
		naming:        c.Naming,
		lock:          configfs.NewLock(c.LockPath),
		log:           c.Log,
		runner:        c.Runner,
		passive:       c.Passive,
		device:        c.Device,
		deviceWait:    c.DeviceWait,
		remake:        c.Remake,
		remakeAfter:   c.RemakeAfter,
		announce:      c.Announce,
		udevIdle:      c.UdevIdle,
		announceAfter: c.AnnounceAfter,
	}
	if e.device == nil {
		e.device = HostDevice
	}
	if e.deviceWait == 0 {
		e.deviceWait = defaultDeviceWait
	}
	if e.remakeAfter == 0 {
		e.remakeAfter = defaultRemakeAfter
	}
	if e.announceAfter == 0 {
		e.announceAfter = defaultAnnounceAfter
	}
	if e.udevIdle == nil {
		e.udevIdle = hostUdevIdle
	}
	return e
}

// Ensure implements export.Exporter. A target under the volume's name that maps
// something else is fault.Precondition and left as it is, and so is a device
// that something else holds. A device that does not appear in time, or not with
// the wanted size, is fault.Unavailable.
//
// Whenever it is cut off, whoever is not in v.Grants, and was not before, has no
// access, nor has anybody more than both states give.
//
// ctx is looked at between operations; one that hangs in the kernel, because
// I/O in flight does not end, holds Ensure beyond it.
func (e *Exporter) Ensure(ctx context.Context, v export.Volume) error {
	if len(v.Grants) == 0 {
		return e.Remove(ctx, v.UUID)
	}
	w, err := e.wanted(v)
	if err != nil {
		return err
	}
	err = e.withDevice(ctx, w.source, w.sizeBytes, func(d Device) error {
		w.device = d
		// What is as it should be needs no turn to write: most of a round is that.
		list, err := e.tree(ctx).differences(w)
		if ctx.Err() == nil && (err != nil || len(list) == 0) {
			return err
		}
		if err := e.change(ctx, func(t tree) error { return t.apply(w) }); err != nil {
			return err
		}
		return e.tree(ctx).verify(w) // nor does reading back need the turn
	})
	if err != nil {
		return fmt.Errorf("export %s over iSCSI: %w", ident.Printable(v.ID), err)
	}
	return nil
}

// Remove implements export.Exporter. A backstore that somebody else's target
// maps is fault.Precondition.
func (e *Exporter) Remove(ctx context.Context, uuid string) error {
	if !ident.ValidUUID(uuid) {
		return fault.New(fault.Invalid, "%q is no volume's uuid", ident.Printable(uuid))
	}
	n := e.names(uuid)
	if err := e.change(ctx, func(t tree) error { return t.remove(n) }); err != nil {
		return fmt.Errorf("take down target %s: %w", n.iqn, err)
	}
	return nil
}

// change runs fn as the only writer of configfs.
func (e *Exporter) change(ctx context.Context, fn func(tree) error) error {
	release, err := e.lock.Acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return fn(e.tree(ctx))
}
