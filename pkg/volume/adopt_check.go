package volume

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// checkPlace refuses a dataset that cannot become this volume, whatever is in it.
func (a *adoption) checkPlace(ctx context.Context) error {
	d := a.dataset
	no := func(format string, args ...any) error {
		return fault.New(fault.Precondition, d.Name+" cannot be adopted: "+format, args...)
	}
	above := d.Name[:strings.LastIndexByte(d.Name, '/')]
	_, marked := d.Own(propName)
	driver, inside := d.Value(propDriver)
	switch {
	case marked && above == a.p.cfg.Parent:
		return fault.New(fault.Exists, "%s is a volume already: see `tarn volumes`", d.Name)
	case inside && above != a.p.cfg.Parent:
		return no("it is below a parent of driver %q, where each dataset is a volume's or the driver's", driver)
	case d.KeyMissing():
		return no("its encryption key is not loaded: run `zfs load-key`")
	}
	if token, set := d.Value("receive_resume_token"); set && token != "" {
		return no("not all of it has been received")
	}
	if v, _ := d.Value("readonly"); v == "on" {
		return no("it is read-only, and nodes would not be able to write: `zfs set readonly=off %s`", d.Name)
	}
	if want := map[string]zfs.Type{NFS: zfs.Filesystem, ISCSI: zfs.Volume}[a.request.Protocol]; d.Type() != want {
		return no("protocol %s needs a %s, and it is a %s", a.request.Protocol, want, d.Type())
	}
	parent, err := a.cfg.ZFS.Get(ctx, a.p.cfg.Parent)
	if err != nil {
		return describe(err, "read parent %s", a.p.cfg.Parent)
	}
	if owner, _ := parent.Own(propDriver); owner != a.cfg.Driver {
		return no("parent %s belongs to no driver yet: start the daemon once", a.p.cfg.Parent)
	}
	children, err := a.cfg.ZFS.Inventory(ctx, d.Name)
	if err != nil {
		return describe(err, "list what is below %s", d.Name)
	}
	if i := slices.IndexFunc(children, func(c zfs.Dataset) bool { return !c.Snapshot() }); i >= 0 {
		return no("%s is below it, and a volume is one dataset: move that elsewhere, or adopt it by itself first", children[i].Name)
	}
	if a.inPlace() {
		return nil
	}
	switch _, err := a.cfg.ZFS.Get(ctx, a.to); {
	case err == nil:
		return fault.New(fault.Exists, "the name is taken: %s exists; give another one with --name", a.to)
	case !errors.Is(err, zfs.ErrNotExist):
		return describe(err, "read %s", a.to)
	}
	return nil
}

// filesystem checks a filesystem that is to be served over NFS, and returns what
// makes it a volume.
func (a *adoption) filesystem(ctx context.Context, uuid string) (marks, native []zfs.Setting, err error) {
	d := a.dataset
	if a.request.FSType != "" || a.request.Block {
		return nil, nil, fault.New(fault.Invalid, "a filesystem type, or block, is for protocol iscsi")
	}
	if err := a.notMounted(ctx); err != nil {
		return nil, nil, err
	}
	p, err := a.parseParams(map[string]string{"pool": a.p.cfg.Name, "protocol": NFS, "thin": a.thin()})
	if err != nil {
		return nil, nil, err
	}
	bytes, used := a.request.SizeBytes, d.Bytes("referenced")
	if bytes == 0 {
		bytes = d.Bytes("refquota")
	}
	if bytes == 0 {
		bytes = min(used+d.Bytes("available"), MaxBytes)
	}
	switch {
	case bytes < used:
		return nil, nil, fault.New(fault.Range, "%s holds %d bytes, and a volume of %d has no room for them: give a larger --size", d.Name, used, bytes)
	case bytes < MinBytes || bytes > MaxBytes:
		return nil, nil, fault.New(fault.Range, "a volume has from %d to %d bytes, and not %d", MinBytes, MaxBytes, bytes)
	}
	if marks, err = a.marks(p, access.Capability{Type: access.Mount, Mode: access.MultiNodeMultiWriter}, uuid, bytes); err != nil {
		return nil, nil, err
	}
	native = a.differing([]zfs.Setting{
		{Name: "refquota", Value: strconv.FormatInt(bytes, 10)},
		{Name: "setuid", Value: "off"}, {Name: "devices", Value: "off"},
	})
	if have, _ := d.Value("canmount"); have != "on" || a.nowhere() {
		native = append(native, zfs.Setting{Name: "canmount", Value: "on"})
	}
	// Set on the dataset itself, so that nothing above opens it.
	for _, share := range []string{"sharenfs", "sharesmb"} {
		if have, own := d.Own(share); !own || have != "off" {
			native = append(native, zfs.Setting{Name: share, Value: "off"})
		}
	}
	return marks, native, nil
}

// notMounted refuses a filesystem that somebody may use here.
func (a *adoption) notMounted(ctx context.Context) error {
	dir, mounted, err := a.cfg.Host.MountedAt(ctx, a.dataset.Name)
	if err != nil || !mounted {
		return err
	}
	var open []string
	if e, ok := a.cfg.Exporters[NFS].(Others); ok {
		list, err := e.Others(ctx)
		if err != nil {
			return err
		}
		for _, o := range list {
			if strings.HasPrefix(o.Source+"/", dir+"/") {
				open = append(open, o.Name)
			}
		}
	}
	if len(open) > 0 {
		return fault.New(fault.Precondition, "%s cannot be adopted: it is mounted at %s and exported (%s): take the export away, then `zfs unmount %s`", a.dataset.Name, dir, several(open), a.dataset.Name)
	}
	return fault.New(fault.Precondition, "%s cannot be adopted: it is mounted at %s: end what uses it, then `zfs unmount %s`", a.dataset.Name, dir, a.dataset.Name)
}

// zvol checks a zvol that is to be served over iSCSI, and returns what makes it a
// volume.
func (a *adoption) zvol(ctx context.Context, uuid string) (marks, native []zfs.Setting, err error) {
	d, device := a.dataset, zfs.DevicePath(a.dataset.Name)
	bytes := d.Bytes("volsize")
	if a.request.SizeBytes != 0 && a.request.SizeBytes != bytes {
		return nil, nil, fault.New(fault.Invalid, "a zvol keeps its size, %d bytes: expand the volume later", bytes)
	}
	users, err := a.cfg.Devices.Users(device)
	if err != nil {
		return nil, nil, fault.New(fault.Precondition, "%s cannot be adopted: its device cannot be looked at (%w): see that volmode is not none", d.Name, err)
	}
	if len(users) > 0 {
		return nil, nil, fault.New(fault.Precondition, "%s cannot be adopted: it is used by %s: end that first", d.Name, several(users))
	}
	given := map[string]string{"pool": a.p.cfg.Name, "protocol": ISCSI, "thin": a.thin(), "zfs.volblocksize": strconv.FormatInt(d.Bytes("volblocksize"), 10)}
	c := access.Capability{Type: access.Block, Mode: access.SingleNodeWriter}
	if !a.request.Block {
		fsType, err := a.fsTypeOn(ctx, device)
		if err != nil {
			return nil, nil, err
		}
		given["fsType"] = fsType
		c = access.Capability{Type: access.Mount, Mode: access.SingleNodeWriter}
	} else if a.request.FSType != "" {
		return nil, nil, fault.New(fault.Invalid, "a block volume has no filesystem type")
	}
	p, err := a.parseParams(given)
	if err != nil {
		return nil, nil, err
	}
	if marks, err = a.marks(p, c, uuid, bytes); err != nil {
		return nil, nil, err
	}
	return marks, a.differing([]zfs.Setting{{Name: "volmode", Value: "dev"}}), nil
}

// fsTypeOn is the filesystem on a zvol: one that nodes mount, and the one that is
// asked for. They would refuse to mount any other.
func (a *adoption) fsTypeOn(ctx context.Context, device string) (string, error) {
	fsType, what, err := a.cfg.Devices.Filesystem(ctx, device)
	switch {
	case err != nil:
		return "", err
	case checkFSType(fsType) != nil:
		return "", fault.New(fault.Precondition, "%s cannot be adopted as a filesystem: it holds %s; use --block to have it served as it is", a.dataset.Name, what)
	case a.request.FSType != "" && a.request.FSType != fsType:
		return "", fault.New(fault.Precondition, "%s cannot be adopted with filesystem type %s: it holds %s", a.dataset.Name, a.request.FSType, what)
	}
	return fsType, nil
}
