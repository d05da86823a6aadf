package storage

import (
	"context"
	"strings"
)

// Devices looks at the host's zvols as an administrator would.
type Devices struct{ Host *Host }

// Users implements volume.Devices.
func (d Devices) Users(device string) ([]string, error) {
	switch {
	case d.Host.Disk(device) == nil:
		return nil, errNoDevice
	case d.Host.claimed(strings.TrimPrefix(device, zvolDir)):
		return []string{"the iSCSI backstore of a test"}, nil
	}
	return nil, nil
}

// Filesystem implements volume.Devices.
func (d Devices) Filesystem(_ context.Context, device string) (fsType, what string, err error) {
	disk := d.Host.Disk(device)
	switch {
	case disk == nil:
		return "", "", errNoDevice
	case disk.Blank():
		return "", "nothing", nil
	case disk.FSType() == "":
		return "", "unknown data", nil
	}
	return disk.FSType(), "a filesystem of type " + disk.FSType(), nil
}
