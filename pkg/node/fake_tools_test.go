package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
)

// initiator attaches the kernel's LUNs.
type initiator struct{ *kernel }

func (a initiator) Attach(ctx context.Context, t attach.Target, c *chap.Credentials) (attach.Device, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var d *device
	created := false
	err := a.effect("attach", func() error {
		l := a.luns[t.IQN]
		switch {
		case len(t.Portals) == 0 || t.Initiator == "":
			return fault.New(fault.Invalid, "no portal or initiator")
		case l == nil || l.number != t.LUN:
			return fault.New(fault.Unavailable, "no such target or LUN")
		case l.hang:
			a.mu.Unlock()
			<-ctx.Done()
			a.mu.Lock()
			return fmt.Errorf("iscsiadm: %w", ctx.Err())
		case l.refuse != nil:
			return l.refuse
		case l.chap != "" && (c == nil || c.Password != l.chap):
			return fault.New(fault.Precondition, "the target refuses the credentials")
		case l.serial != t.Serial:
			return fault.New(fault.Precondition, "the disk has another serial")
		}
		if d = a.sessions[t.IQN]; d != nil {
			d.size = l.size
			return nil
		}
		created = true
		d = &device{number: number{8, a.nextMinor}, lun: l, size: l.size, initiator: t.Initiator}
		a.nextMinor += 16
		d.path = filepath.Join(a.dir, "dev", fmt.Sprintf("sd%d", d.number.minor))
		a.sessions[t.IQN] = d
		a.records[t.IQN] = t.Initiator
		return os.WriteFile(d.path, nil, 0o600)
	})
	if err != nil {
		if created { // what a failed Attach began, it takes back
			a.drop(t.IQN)
			delete(a.records, t.IQN)
		}
		return attach.Device{}, err
	}
	return attach.Device{Path: d.path, Major: uint32(d.number.major), Minor: uint32(d.number.minor)}, nil
}

func (a initiator) Find(_ context.Context, t attach.Target) (attach.Device, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.sessions[t.IQN]
	if d == nil || d.lun.number != t.LUN {
		return attach.Device{}, false, nil
	}
	if d.lun.serial != t.Serial {
		return attach.Device{}, false, fault.New(fault.Precondition, "the disk has another serial")
	}
	return attach.Device{Path: d.path, Major: uint32(d.number.major), Minor: uint32(d.number.minor)}, true, nil
}

func (a initiator) Detach(ctx context.Context, t attach.Target) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.effect("detach", func() error {
		d := a.sessions[t.IQN]
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d == nil:
			delete(a.records, t.IQN)
			return nil
		case a.used(d.number):
			a.violation("detach of %s while it is used", t.IQN)
			return fault.New(fault.Precondition, "the disk is used")
		}
		a.drop(t.IQN)
		delete(a.records, t.IQN)
		return nil
	})
}

func (a initiator) Attachments(context.Context) ([]attach.Attachment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []attach.Attachment
	for iqn := range a.sessions {
		list = append(list, attach.Attachment{IQN: iqn, Server: "192.0.2.10", Sessions: 1})
	}
	for iqn := range a.records {
		if a.sessions[iqn] == nil {
			list = append(list, attach.Attachment{IQN: iqn, Server: "192.0.2.10"})
		}
	}
	return list, nil
}

func (a initiator) DetachOrphan(ctx context.Context, iqn, initiator string) (removed []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err = a.effect("detach orphan", func() error {
		if d := a.sessions[iqn]; d != nil {
			switch {
			case d.initiator != initiator:
				return fault.New(fault.Precondition, "the session is another initiator's")
			case a.used(d.number), d.opened:
				return fault.New(fault.Precondition, "the disk is used")
			case d.stuck:
				a.mu.Unlock()
				<-a.revived // SIGKILL does not end it
				a.mu.Lock()
				return fmt.Errorf("iscsiadm: %w", ctx.Err())
			}
			a.drop(iqn)
			removed = append(removed, "session")
		}
		if r, ok := a.records[iqn]; ok && r != initiator {
			return fault.New(fault.Precondition, "the record is another interface's")
		} else if ok {
			delete(a.records, iqn)
			removed = append(removed, "record")
		}
		return nil
	})
	return removed, err
}

// Rescan shows the size that the LUN has now, where its target answers.
func (a initiator) Rescan(ctx context.Context, t attach.Target) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.effect("rescan", func() error {
		d := a.sessions[t.IQN]
		switch {
		case d == nil:
			return fault.New(fault.Precondition, "%s is not attached", t.IQN)
		case d.lun.hang:
			a.mu.Unlock()
			<-ctx.Done()
			a.mu.Lock()
			return fmt.Errorf("tee: %w", ctx.Err())
		case d.lun.readError:
			return fault.New(fault.Unavailable, "the session with %s is lost", t.IQN)
		case d.lun.late > 0:
			d.lun.late--
		default:
			d.size = d.lun.size
		}
		return nil
	})
}

func (a initiator) Reachable(_ context.Context, t attach.Target) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch d := a.sessions[t.IQN]; {
	case d == nil:
		return fault.New(fault.Precondition, "there is no session with %s", t.IQN)
	case d.lun.readError:
		return fault.New(fault.Unavailable, "the session with %s is lost", t.IQN)
	}
	return nil
}

// used reports whether a device is mounted, or its node bound.
func (k *kernel) used(n number) bool {
	for _, i := range k.mounts {
		if (number{i.Major, i.Minor}) == n || k.nodes[i.ID] == n {
			return true
		}
	}
	return false
}

func (a initiator) Ready(context.Context) error { return nil }

func (a initiator) TargetOfDevice(major, minor int) (iqn string, lun int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for iqn, d := range a.sessions {
		if d.number == (number{major, minor}) {
			return iqn, d.lun.number, true
		}
	}
	return "", 0, false
}

// nfsClient is the real one's surface: there is nothing to attach.
type nfsClient struct {
	*kernel
	ready error
}

func (nfsClient) Attach(_ context.Context, t attach.Target, _ *chap.Credentials) (attach.Device, error) {
	return attach.Device{Path: t.Server + ":" + t.Share}, nil
}

func (nfsClient) Find(_ context.Context, t attach.Target) (attach.Device, bool, error) {
	return attach.Device{Path: t.Server + ":" + t.Share}, true, nil
}

func (nfsClient) Detach(context.Context, attach.Target) error { return nil }

func (nfsClient) Rescan(context.Context, attach.Target) error { return nil }

func (nfsClient) Reachable(context.Context, attach.Target) error { return nil }

func (c nfsClient) Ready(context.Context) error { return c.ready }

// fsTools are the fake Filesystems.
type fsTools struct{ *kernel }

func (f fsTools) disk(device string) (*device, error) {
	if d := f.deviceAt(device); d != nil {
		return d, nil
	}
	return nil, fault.New(fault.Unavailable, "%s is gone", device)
}

func (f fsTools) Probe(ctx context.Context, device string) (mount.Content, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(device)
	switch {
	case ctx.Err() != nil:
		return mount.Content{}, ctx.Err()
	case err != nil:
		return mount.Content{}, err
	case d.lun.readError:
		return mount.Content{}, fault.New(fault.Unavailable, "%s cannot be read", device)
	case d.lun.content == "":
		return mount.Content{Blank: true, What: "nothing"}, nil
	case d.lun.content == "partial":
		return mount.Content{What: "unknown data"}, nil
	}
	return mount.Content{FSType: d.lun.content, What: "a filesystem of type " + d.lun.content}, nil
}

func (f fsTools) Format(ctx context.Context, device, fsType string, options []string, again bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(device)
	if err != nil {
		return err
	}
	begun := false
	err = f.effect("mkfs", func() error {
		switch {
		case f.used(d.number):
			f.violation("mkfs on a device that is used")
			return fault.New(fault.Unavailable, "%s is in use", device)
		case d.lun.protected || d.lun.content != "" && !again:
			f.violation("mkfs on a device that is write-protected or not blank (%s)", d.lun.content)
			return fault.New(fault.Precondition, "%s is not formatted", device)
		case f.hangMkfs:
			d.lun.content = "partial"
			f.mu.Unlock()
			<-ctx.Done()
			f.mu.Lock()
			return fmt.Errorf("mkfs: %w", ctx.Err())
		}
		begun = true
		d.lun.content, d.lun.uuid, d.lun.fsSize = fsType, fmt.Sprint("uuid-", len(f.effects)), d.size
		return nil
	})
	if err != nil && begun {
		d.lun.content = "partial" // one that failed late
	}
	return err
}

func (f fsTools) Check(_ context.Context, device, fsType string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(device)
	if err != nil {
		return err
	}
	return f.effect("fsck", func() error {
		if f.used(d.number) || d.lun.protected {
			f.violation("fsck on a device that is mounted or write-protected")
		}
		if d.lun.damaged {
			return fault.New(fault.Precondition, "%s: run fsck by hand", device)
		}
		return nil
	})
}

func (f fsTools) Grow(_ context.Context, device, mountPath string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(device)
	if err != nil {
		return false, err
	}
	grown := false
	err = f.effect("grow", func() error {
		i, ok := f.top(mountPath)
		if !ok || (number{i.Major, i.Minor}) != d.number {
			return fault.New(fault.Precondition, "%s is not mounted at %s", device, mountPath)
		}
		if f.supers[d.number].ro || slices.Contains(i.Options, "ro") {
			f.violation("grow of a read-only filesystem")
		}
		grown = d.lun.fsSize < d.size
		d.lun.fsSize = d.size
		return nil
	})
	return grown, err
}

func (f fsTools) SizeBytes(device string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.disk(device)
	if err != nil {
		return 0, err
	}
	return d.size, nil
}

func (f fsTools) ErrorCount(major, minor int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sb := f.supers[number{major, minor}]; sb != nil && sb.lun != nil {
		return sb.lun.errors, nil
	}
	return 0, nil
}

// fakeHost answers as the superblocks do.
type fakeHost struct{ *kernel }

func (h fakeHost) Alive(ctx context.Context, path string) error {
	h.mu.Lock()
	i, ok := h.top(path)
	sb := h.supers[number{i.Major, i.Minor}]
	h.mu.Unlock()
	switch {
	case !ok || sb == nil:
		return errors.New("stat: no filesystem there")
	case sb.export != nil && sb.export.hang:
		<-ctx.Done()
		return ctx.Err()
	case sb.dead, sb.export != nil && sb.export.stale:
		return errors.New("stat: Input/output error")
	}
	return nil
}

// Usage answers for what is at the path when the server answers: the node's own
// disk where nothing is.
func (h fakeHost) Usage(ctx context.Context, path string) (Usage, error) {
	size := int64(rootBytes)
	h.mu.Lock()
	i, ok := h.top(path)
	h.mu.Unlock()
	if ok {
		if err := h.Alive(ctx, path); ctx.Err() != nil {
			return Usage{}, ctx.Err()
		} else if err != nil {
			return Usage{}, fault.New(fault.Unavailable, "%w", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if sb := h.supers[number{i.Major, i.Minor}]; sb.export != nil {
			size = sb.export.size
		} else {
			size = sb.lun.fsSize
		}
	}
	return Usage{Bytes: Amount{Total: size, Available: size}}, nil
}

// rootBytes is the size of the node's own disk.
const rootBytes = 1 << 40

func (h fakeHost) SetReadOnly(_ context.Context, device string, readOnly bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.effect(fmt.Sprintf("setro %v", readOnly), func() error {
		d := h.deviceAt(device)
		if d == nil {
			return fault.New(fault.Unavailable, "%s is gone", device)
		}
		d.ro = readOnly
		return nil
	})
}

func (h fakeHost) DeviceNumber(path string) (major, minor int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.top(path)
	if i.FSType != "devtmpfs" || i.Root == "/" {
		h.violation("stat of %s, a %s mount that may hang", path, i.FSType)
	}
	n, isNode := h.nodes[i.ID]
	if !ok || !isNode {
		return 0, 0, errors.New("not a block device")
	}
	return n.major, n.minor, nil
}

func (h fakeHost) BootID() (string, error) { return h.boot, nil }

// watchedDisk is the real disk, with side effects that can be sabotaged, and
// mount points that cannot be removed.
type watchedDisk struct {
	hostDisk
	*kernel
}

func (d watchedDisk) guard(what string, fn func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.effect(what, fn)
}

func (d watchedDisk) write(name string, data []byte) error {
	return d.guard("write record", func() error {
		// As hostDisk does, without the sync: no test here cuts the power.
		if err := os.WriteFile(name+".new", data, 0o600); err != nil {
			return err
		}
		return os.Rename(name+".new", name)
	})
}

func (d watchedDisk) erase(name string) error {
	return d.guard("erase record", func() error { return os.RemoveAll(name) })
}

func (d watchedDisk) mkdir(path string) error {
	return d.guard("mkdir", func() error { return d.hostDisk.mkdir(path) })
}

func (d watchedDisk) mkfile(path string) error {
	return d.guard("mkfile", func() error { return d.hostDisk.mkfile(path) })
}

func (d watchedDisk) rmdir(path string) error {
	return d.guard("rmdir", func() error {
		if _, mounted := d.top(path); mounted {
			d.violation("rmdir of the mount point %s", path)
			return &os.PathError{Op: "rmdir", Path: path, Err: unix.EBUSY}
		}
		return d.hostDisk.rmdir(path)
	})
}

func (d watchedDisk) rmfile(path string) error {
	return d.guard("rmfile", func() error {
		if _, mounted := d.top(path); mounted {
			d.violation("unlink of the mount point %s", path)
			return &os.PathError{Op: "unlink", Path: path, Err: unix.EBUSY}
		}
		return d.hostDisk.rmfile(path)
	})
}
