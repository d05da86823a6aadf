package release

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/run"
)

// dmsetup records what is removed, and refuses the names that are open.
type dmsetup struct {
	removed []string
	open    string
}

func (d *dmsetup) Run(_ context.Context, c run.Cmd) ([]byte, error) {
	name := c.Args[len(c.Args)-1]
	if c.Tool != "dmsetup" || c.Args[0] != "remove" {
		return nil, errors.New("unexpected")
	}
	if name == d.open {
		return nil, &run.Error{Line: "dmsetup", Code: 1, Stderr: "device-mapper: remove ioctl on " + name + "  failed: Device or resource busy\nCommand failed.", Err: errors.New("exit status 1")}
	}
	d.removed = append(d.removed, name)
	return nil, nil
}

// zvol makes a block device zd0 in sys, with a link to it.
func (h host) zvol(d *dmsetup) string {
	h.Helper()
	h.run = d
	dir := h.TempDir()
	h.write(filepath.Join(dir, "zd0"), "")
	link := filepath.Join(dir, "pvc-1")
	if err := os.Symlink("zd0", link); err != nil {
		h.Fatal(err)
	}
	return link
}

// mapping is a device-mapper device on top of another.
func (h host) mapping(name, dm, on, uuid string) {
	h.Helper()
	h.write(filepath.Join(h.sys, "block", on, "holders", dm), "")
	h.write(filepath.Join(h.sys, "block", dm, "dm/name"), name+"\n")
	h.write(filepath.Join(h.sys, "block", dm, "dm/uuid"), uuid+"\n")
}

func TestLogicalVolumesAreRemovedTopFirst(t *testing.T) {
	h, d := newHost(t), &dmsetup{}
	device := h.zvol(d)
	h.mapping("vg-thin", "dm-1", "zd0", "LVM-abc")
	h.mapping("vg-pool", "dm-2", "dm-1", "LVM-def-tpool")
	if err := h.Release(t.Context(), Held{Device: device}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.removed, []string{"vg-pool", "vg-thin"}) {
		t.Errorf("removed %q", d.removed)
	}
}

func TestAnOpenLogicalVolumeIsNamedAndLeft(t *testing.T) {
	h, d := newHost(t), &dmsetup{open: "vg-data"}
	device := h.zvol(d)
	h.mapping("vg-data", "dm-1", "zd0", "LVM-abc")
	err := h.Release(t.Context(), Held{Device: device})
	if err == nil || !strings.Contains(err.Error(), "vg-data") || !strings.Contains(err.Error(), "unmount") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoLogicalVolumeIsNamedAndLeft(t *testing.T) {
	h, d := newHost(t), &dmsetup{}
	device := h.zvol(d)
	h.mapping("crypt", "dm-1", "zd0", "CRYPT-LUKS2-abc")
	if err := h.Release(t.Context(), Held{Device: device}); err == nil || !strings.Contains(err.Error(), "dm-1") {
		t.Errorf("%v", err)
	}
	h2 := newHost(t)
	device = h2.zvol(d)
	h2.write(filepath.Join(h2.sys, "block/zd0/holders/md127"), "")
	if err := h2.Release(t.Context(), Held{Device: device}); err == nil || !strings.Contains(err.Error(), "md127") {
		t.Errorf("%v", err)
	}
	if len(d.removed) > 0 {
		t.Errorf("removed %q", d.removed)
	}
}
