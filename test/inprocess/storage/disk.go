package storage

import (
	"slices"
	"strings"
	"sync"

	configfsfake "github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/export/iscsi"
)

// zvolDir is where udev links the devices of zvols.
const zvolDir = "/dev/zvol/"

// Disk is what a zvol holds. It goes with the zvol: one that is made anew under
// the same name is another, and empty.
type Disk struct {
	major, minor uint32

	mu        sync.Mutex
	sizeBytes int64
	// fsType is the filesystem on it, "" for none, and fsBytes its size.
	fsType  string
	fsBytes int64
	data    []byte
}

// SizeBytes returns the size of the disk.
func (d *Disk) SizeBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sizeBytes
}

func (d *Disk) resize(sizeBytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sizeBytes = sizeBytes
}

// FSType returns the filesystem on the disk, "" for none.
func (d *Disk) FSType() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fsType
}

// Format makes a filesystem; what was there is lost.
func (d *Disk) Format(fsType string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fsType, d.fsBytes, d.data = fsType, d.sizeBytes, nil
}

// FSBytes returns the size of the filesystem on the disk.
func (d *Disk) FSBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fsBytes
}

// GrowFS makes the filesystem larger, and never smaller.
func (d *Disk) GrowFS(sizeBytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fsBytes = max(d.fsBytes, sizeBytes)
}

// Blank reports whether nothing was ever written.
func (d *Disk) Blank() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fsType == "" && d.data == nil
}

// Write keeps data: the one file of its filesystem, or its first bytes.
func (d *Disk) Write(data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data = slices.Clone(data)
}

// Data returns what Write kept.
func (d *Disk) Data() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.data)
}

// Disk returns the disk at a device path, or nil.
func (h *Host) Disk(path string) *Disk {
	name, ok := strings.CutPrefix(path, zvolDir)
	if !ok {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.Pool.Names(), name) {
		return nil
	}
	return h.disks[name]
}

// device is how the exporter sees a zvol: not before it exists.
func (h *Host) device(path string) (iscsi.Device, error) {
	d := h.Disk(path)
	if d == nil {
		return iscsi.Device{}, errNoDevice
	}
	return iscsi.Device{Major: d.major, Minor: d.minor, SizeBytes: d.SizeBytes()}, nil
}

// addDisk is udev's work after a zvol was made.
func (h *Host) addDisk(name string, sizeBytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.minor += 16
	h.link(name, &Disk{major: 230, minor: h.minor, sizeBytes: sizeBytes})
}

func (h *Host) link(name string, d *Disk) {
	h.disks[name] = d
	h.Configfs.AddDevice(configfsfake.Device{Path: zvolDir + name, Major: d.major, Minor: d.minor, SizeBytes: d.SizeBytes()})
}

// resizeDisk gives the device the size that its zvol has now.
func (h *Host) resizeDisk(name string, sizeBytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.disks[name]; d != nil {
		d.resize(sizeBytes)
	}
}

func (h *Host) moveDisk(from, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.disks[from]
	delete(h.disks, from)
	h.Configfs.RemoveDevice(zvolDir + from)
	if d != nil && to != "" {
		h.link(to, d)
	}
}

// claimed reports whether a backstore has a zvol's device open: it cannot be
// destroyed then.
func (h *Host) claimed(name string) bool {
	for _, line := range h.Targets() {
		path, value, ok := strings.Cut(line, " = ")
		if ok && strings.HasSuffix(path, "/info") && strings.Contains(value, "Status: ACTIVATED") && strings.Contains(value, "UDEV PATH: "+zvolDir+name+"  ") {
			return true
		}
	}
	return false
}
