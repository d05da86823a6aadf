package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Device is a block device as this host shows it.
type Device struct {
	Major, Minor uint32
	SizeBytes    int64

	held io.Closer // nil where nothing has to be closed
}

// Close lets go of the device.
func (d Device) Close() error {
	if d.held == nil {
		return nil
	}
	return d.held.Close()
}

type descriptor int

func (d descriptor) Close() error { return unix.Close(int(d)) }

// blkZNAME asks a zvol for its dataset: BLKZNAME, _IOR(0x12, 125, char[256]),
// in OpenZFS's include/sys/fs/zfs.h.
const blkZNAME = 2<<30 | zvolNameBytes<<16 | 0x12<<8 | 125

const zvolNameBytes = 256 // ZFS_MAX_DATASET_NAME_LEN

const zvolDir = "/dev/zvol/"

// HostDevice looks at the block device that path names now, and holds it open
// until the caller closes it: the first open of a zvol is slow, and any further one
// while it is open is not. A device found under /dev/zvol must be the zvol of that
// name: udev sets the links some time after the volumes come, go and are renamed,
// so one may still name another.
func HostDevice(path string) (_ Device, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return Device{}, fmt.Errorf("%s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, fmt.Errorf("%s is not a block device", path)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Device{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Fstat(fd, &stat); err != nil {
		return Device{}, fmt.Errorf("%s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, fmt.Errorf("%s is not a block device", path)
	}
	var size uint64
	if err := ioctl(fd, unix.BLKGETSIZE64, unsafe.Pointer(&size)); err != nil {
		return Device{}, fmt.Errorf("size of %s: %w", path, err)
	}
	if name, ok := strings.CutPrefix(path, zvolDir); ok {
		if err := checkZvol(fd, name); err != nil {
			return Device{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return Device{Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev), SizeBytes: int64(size), held: descriptor(fd)}, nil
}

// checkZvol compares the zvol behind fd with its name under /dev/zvol, in which
// udev writes a blank as a plus sign.
func checkZvol(fd int, name string) error {
	var buf [zvolNameBytes]byte
	if err := ioctl(fd, blkZNAME, unsafe.Pointer(&buf)); err != nil {
		return fmt.Errorf("not a zvol: %w", err)
	}
	if zvol := unix.ByteSliceToString(buf[:]); strings.ReplaceAll(zvol, " ", "+") != name {
		return fmt.Errorf("the link still names the zvol %s", zvol)
	}
	return nil
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}

// The device link of a zvol appears some time after `zfs create` has returned.
const (
	firstPoll = time.Millisecond
	maxPoll   = 100 * time.Millisecond
)

// poll calls try at short, growing intervals until it returns nil or ctx ends,
// and returns its last error.
func poll(ctx context.Context, try func() error) error {
	wait := firstPoll
	for {
		err := try()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		wait = min(wait*3/2+time.Microsecond, maxPoll)
	}
}

// restartSys is ERESTARTSYS, which the kernel should keep to itself. zvol_open
// returns it when another command holds the lock on all pools' names for a
// second (zvol_open_timeout_ms in module/os/linux/zfs/zvol_os.c), and LIO hands
// it on.
const restartSys = syscall.Errno(512)

// lateError is a device that was there, and could not be opened by the kernel: a
// zvol made under the name of one that was just destroyed loses its link once
// more when udev comes to that, or other zfs commands run.
type lateError struct{ error }

func (e *lateError) Unwrap() error { return e.error }

// withDevice calls use with the device at path as soon as it is a block device
// of the wanted size, and again when use says that it was late. Nothing is ever
// made under /dev by hand; what is not there is looked for by seek.
func (e *Exporter) withDevice(ctx context.Context, path string, sizeBytes int64, use func(Device) error) error {
	waiting, cancel := context.WithTimeout(ctx, e.deviceWait)
	defer cancel()
	began := time.Now()
	var result error
	seek := e.seek(path)
	err := poll(waiting, func() error {
		d, err := e.device(path)
		if errors.Is(err, fs.ErrNotExist) {
			seek(waiting, time.Since(began))
		}
		defer d.Close() //nolint:errcheck // it was only read
		if err == nil && d.SizeBytes != sizeBytes {
			err = fmt.Errorf("%s has %d bytes, not %d", path, d.SizeBytes, sizeBytes)
		}
		if err != nil {
			return err
		}
		var late *lateError
		if result = use(d); errors.As(result, &late) {
			return result
		}
		return nil
	})
	switch {
	case err == nil:
		return result
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("wait for the device: %w", ctx.Err())
	}
	remedy := "see that udev runs"
	if !e.udevIdle() {
		remedy = "udev is busy with others, see `tarn check`"
	}
	return fault.New(fault.Unavailable, "the volume's device was not there within %s: %w; %s, and repeat the call",
		time.Since(began).Round(time.Millisecond), err, remedy)
}

// seek returns what is done for a device of which nothing is seen since some
// time, while udev has nothing else to do: it would only get the more.
//
// First udev may have failed to name the device, see AnnounceZvols; it is asked
// after ever longer times. Then there may be none: ZFS removes the device of a zvol that is destroyed or renamed
// later, and by its name, so that one of the same name that was made meanwhile
// is left without for good (zvol_remove_minors in module/zfs/zvol.c). It is made
// anew, once.
func (e *Exporter) seek(path string) func(ctx context.Context, since time.Duration) {
	announceAfter, remade := e.announceAfter, e.remake == nil
	return func(ctx context.Context, since time.Duration) {
		log := e.log.WithField("device", path)
		if e.announce != nil && since > announceAfter && e.udevIdle() {
			announceAfter = 2 * since
			log.Info("udev made no link and is asked to look again")
			if err := e.announce(); err != nil {
				log.WithError(err).Warn("udev could not be asked to look at the device again")
			}
		}
		if !remade && since > e.remakeAfter && e.udevIdle() {
			remade = true
			log.Warn("the device does not appear and is made anew")
			if err := e.remake(ctx, path); err != nil {
				log.WithError(err).Warn("the device could not be made anew")
			}
		}
	}
}
