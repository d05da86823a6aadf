package iscsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// C13: the link of a zvol shows up late, first as nothing, then as something
// that is not it yet.
func TestC13DeviceIsWaitedFor(t *testing.T) {
	h := fakeHost(t)
	tries := 0
	i := h.instanceWith(t, "a", func(c *Config) {
		c.DeviceWait = 10 * time.Second
		c.Device = func(path string) (Device, error) {
			tries++
			switch tries {
			case 1, 2:
				return Device{}, &os.PathError{Op: "stat", Path: path, Err: os.ErrNotExist}
			case 3:
				return Device{SizeBytes: zvolBytes / 2}, nil
			}
			return h.device(path)
		}
	})
	v := grants(h.volume(t, 1), openA)
	began := time.Now()
	i.ensure(t, v)
	if tries != 4 {
		t.Errorf("looked %d times", tries)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("three short waits took %s", d)
	}
}

// holder counts what is open.
type holder int

func (h *holder) Close() error {
	*h--
	return nil
}

// A device is held while its target is made, which opens it too, and whatever comes
// of that it is let go of.
func TestDeviceIsHeldUntilItIsExported(t *testing.T) {
	h := fakeHost(t)
	var open holder
	late := true
	i := h.instanceWith(t, "a", func(c *Config) {
		c.Device = func(path string) (Device, error) {
			d, err := h.device(path)
			d.held = &open
			open++
			if late {
				d.SizeBytes, late = d.SizeBytes/2, false
			}
			return d, err
		}
	})
	seen := 0
	i.inject.Observe(func(op fake.Op) {
		if seen++; open != 1 {
			t.Errorf("%s %s: open %d times", op.Name, op.Path, open)
		}
	})
	v := grants(h.volume(t, 1), openA)
	i.ensure(t, v)
	i.inject.Observe(nil)
	if open != 0 || late || seen == 0 {
		t.Errorf("%d are open in the end, after %d operations", open, seen)
	}
	i.inject.FailNth(1, syscall.EIO)
	if err := i.Ensure(t.Context(), v); err == nil || open != 0 {
		t.Errorf("%d are open after %v", open, err)
	}
}

// A device of which nothing is seen for long is made anew, once, and not before
// udev has done everything else.
func TestC13LostDeviceIsMadeAnew(t *testing.T) {
	h := fakeHost(t)
	var remade []string
	found, idle := false, true
	i := h.instanceWith(t, "a", func(c *Config) {
		c.DeviceWait, c.RemakeAfter = 300*time.Millisecond, 20*time.Millisecond
		c.UdevIdle = func() bool { return idle }
		c.Remake = func(_ context.Context, path string) error {
			remade = append(remade, path)
			return nil
		}
		c.Device = func(path string) (Device, error) {
			if !found || len(remade) == 0 {
				return Device{}, &os.PathError{Op: "stat", Path: path, Err: os.ErrNotExist}
			}
			return h.device(path)
		}
	})
	v := grants(h.volume(t, 1), openA)
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("Ensure without a device: %v", err)
	}
	if !slices.Equal(remade, []string{v.Source}) {
		t.Fatalf("made anew: %v", remade)
	}
	remade, idle = nil, false
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "udev is busy") {
		t.Errorf("Ensure while udev is busy: %v", err)
	}
	if remade != nil {
		t.Errorf("made anew while udev was busy: %v", remade)
	}
	found, remade, idle = true, nil, true
	i.ensure(t, v)
	if !slices.Equal(remade, []string{v.Source}) {
		t.Errorf("made anew: %v", remade)
	}
}

// A device that udev left without a link is announced again, ever more rarely,
// and not while udev has something to do.
func TestC13DeviceWithoutLinkIsAnnounced(t *testing.T) {
	h := fakeHost(t)
	asked, needed, idle := 0, 2, true
	i := h.instanceWith(t, "a", func(c *Config) {
		c.AnnounceAfter = time.Millisecond
		c.UdevIdle = func() bool { return idle }
		c.Announce = func() error {
			asked++
			return errors.New("one of them")
		}
		c.Device = func(path string) (Device, error) {
			if asked < needed {
				return Device{}, &os.PathError{Op: "stat", Path: path, Err: os.ErrNotExist}
			}
			return h.device(path)
		}
	})
	v := grants(h.volume(t, 1), openA)
	i.ensure(t, v)
	if asked != 2 || !strings.Contains(i.log.String(), "one of them") {
		t.Errorf("announced %d times; the log: %s", asked, i.log)
	}
	asked, needed, i.deviceWait = 0, 100, 300*time.Millisecond
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) || asked < 2 || asked > 10 {
		t.Errorf("announced %d times in 300 ms: %v", asked, err)
	}
	asked, idle = 0, false
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) || asked != 0 {
		t.Errorf("announced %d times while udev was busy: %v", asked, err)
	}
}

// Only zvols to which udev has made no link are announced.
func TestAnnounceZvols(t *testing.T) {
	root := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		p := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644))
	}
	for i, data := range []string{"S:tank/a\nS:zvol/tank/a\nI:1\n", "S:zvol/tank/b\n", "I:1\nE:X=S:zvol/\n", ""} {
		zd := fmt.Sprintf("zd%d", 16*i)
		file("sys/block/"+zd+"/dev", fmt.Sprintf("230:%d\n", 16*i))
		file("sys/block/"+zd+"/uevent", "")
		if data != "" {
			file(fmt.Sprintf("run/udev/data/b230:%d", 16*i), data)
		}
	}
	file("sys/block/sda/dev", "8:0\n")
	file("sys/block/sda/uevent", "")
	must(t, announceZvols(root))
	for name, want := range map[string]string{"zd0": "", "zd16": "", "zd32": "change", "zd48": "change", "sda": ""} {
		if got, err := os.ReadFile(filepath.Join(root, "sys/block", name, "uevent")); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestC13DeviceThatNeverComes(t *testing.T) {
	for name, device := range map[string]func(string) (Device, error){
		"no link":     func(string) (Device, error) { return Device{}, os.ErrNotExist },
		"wrong size":  func(string) (Device, error) { return Device{SizeBytes: zvolBytes + 512}, nil },
		"plain file":  func(string) (Device, error) { return HostDevice("/etc/passwd") },
		"no such dir": func(string) (Device, error) { return HostDevice("/dev/zvol/no-such-pool/x") },
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t)
			empty := h.view(t)
			i := h.instanceWith(t, "a", func(c *Config) {
				c.Device = device
				c.DeviceWait = 20 * time.Millisecond
			})
			v := grants(h.volume(t, 1), openA)
			if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
				t.Fatalf("Ensure: %v", err)
			}
			sameView(t, "without a device", empty, h.view(t))
			// The wait is also bounded by the caller's deadline and ends when it leaves.
			i.deviceWait = time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if err := i.Ensure(ctx, v); !errors.Is(err, fault.Unavailable) {
				t.Fatalf("Ensure under a deadline: %v", err)
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			if err := i.Ensure(gone, v); !errors.Is(err, context.Canceled) {
				t.Fatalf("Ensure of a caller that left: %v", err)
			}
			// The lock is not held while a device is waited for.
			if err := i.Remove(t.Context(), uuid(2)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestHostDeviceWantsABlockDevice(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(string) error{
		"plain file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"directory":  func(p string) error { return os.Mkdir(p, 0o700) },
		"dangling":   func(p string) error { return os.Symlink(dir+"/nothing", p) },
		"character":  func(p string) error { return os.Symlink("/dev/null", p) },
		"nothing":    func(string) error { return nil },
	} {
		p := filepath.Join(dir, name)
		must(t, make(p))
		before := listing(t, dir)
		if d, err := HostDevice(p); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
		if after := listing(t, dir); before != after {
			t.Errorf("%s: %q became %q", name, before, after)
		}
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}
