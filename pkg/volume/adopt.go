package volume

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// AdoptRequest asks to make a volume of a dataset that exists.
type AdoptRequest struct {
	Dataset  string
	Protocol string
	// Name is the volume's; empty is the last component of the dataset.
	Name string
	// Pool is needed where several pools of the configuration lie in one pool of
	// ZFS and the dataset is directly below none of their parents.
	Pool string
	// FSType is the filesystem on a zvol; empty takes what is there. Block asks
	// for a block volume, whatever is on it.
	FSType string
	Block  bool
	// SizeBytes is a filesystem's quota; zero keeps its refquota, or else what it
	// can grow to today. A zvol has its size.
	SizeBytes int64
}

// Devices looks at the devices of this host's zvols.
type Devices interface {
	// Users names what has a device open for itself.
	Users(device string) ([]string, error)
	// Filesystem returns the type of the filesystem on a device, "" where there is
	// none that is known, and in words what there is.
	Filesystem(ctx context.Context, device string) (fsType, what string, err error)
}

// Adopt makes a volume of a filesystem or zvol that somebody made, without
// touching its data. It holds no lock: what makes it a volume comes last, and at
// once. That is its rename to below the parent, or, where it is there already,
// the property with the name. Cut off before that, the dataset is what it was,
// with some properties that mean nothing to it, and the next call begins anew.
//
// Errors: fault.NotFound when there is no such dataset; fault.Exists when the
// name is taken; fault.Precondition when it is in use, or cannot be a volume as
// it is; the text says what to do.
func (s *Service) Adopt(ctx context.Context, r AdoptRequest) (Volume, error) {
	a := adoption{Service: s, request: r}
	if s.cfg.Exporters[r.Protocol] == nil {
		return Volume{}, fault.New(fault.Invalid, "protocol is %q; this driver serves %s", ident.Printable(r.Protocol), strings.Join(s.Protocols(), ", "))
	}
	if err := a.choosePool(); err != nil {
		return Volume{}, err
	}
	var v Volume
	err := s.read(ctx, "adopt", a.p.cfg.Name, func(ctx context.Context) error {
		var err error // the operation may outlive this call
		v, err = a.run(ctx)
		return err
	})
	if err != nil {
		return Volume{}, err
	}
	return v, nil
}

// adoption is one call of Adopt.
type adoption struct {
	*Service
	request AdoptRequest
	p       *pool
	id      ident.VolumeID
	// name is what the volume is called, to the dataset that it becomes.
	name, to string
	dataset  zfs.Dataset
}

// choosePool finds the pool that the volume is to be in: one whose parent is in
// the same pool of ZFS, since a dataset cannot be renamed into another.
func (a *adoption) choosePool() error {
	whole := a.request.Dataset
	zpool, _, below := strings.Cut(whole, "/")
	if !below || strings.Contains(whole, "@") {
		return fault.New(fault.Invalid, "%q is no dataset that can become a volume: give a filesystem or zvol, such as tank/data", ident.Printable(whole))
	}
	if a.request.Pool != "" && a.pools[a.request.Pool] == nil {
		return fault.New(fault.Invalid, "no pool %q is configured; there are %s", ident.Printable(a.request.Pool), strings.Join(a.order, ", "))
	}
	var candidates []string
	for _, name := range a.order {
		p := a.pools[name]
		if strings.HasPrefix(p.cfg.Parent+"/", whole+"/") {
			return fault.New(fault.Precondition, "%s is the parent dataset of pool %q, or above it: it holds the volumes", whole, name)
		}
		if at, _, _ := strings.Cut(p.cfg.Parent, "/"); at != zpool || a.request.Pool != "" && a.request.Pool != name {
			continue
		}
		if whole[:strings.LastIndexByte(whole, '/')] == p.cfg.Parent {
			a.p = p
		}
		candidates = append(candidates, name)
	}
	switch {
	case a.p != nil:
	case len(candidates) == 1:
		a.p = a.pools[candidates[0]]
	case len(candidates) == 0:
		return fault.New(fault.Precondition, "%s cannot be renamed to below a parent of this driver, since none of them is in pool %s: copy it there with `zfs send` and `zfs receive` first", whole, zpool)
	default:
		return fault.New(fault.Invalid, "%s could become a volume of %s: say which with --pool-name", whole, strings.Join(candidates, " or "))
	}
	a.name = a.request.Name
	if a.name == "" {
		a.name = whole[strings.LastIndexByte(whole, '/')+1:]
	}
	a.id = ident.VolumeID{Pool: a.p.cfg.Name, Component: ident.Component(a.name)}
	a.to = a.p.dataset(a.id.Component)
	return nil
}

// inPlace reports that the dataset has its name already.
func (a *adoption) inPlace() bool { return a.request.Dataset == a.to }

func (a *adoption) run(ctx context.Context) (Volume, error) {
	if err := a.survey(ctx, a.p); err != nil {
		return Volume{}, err
	}
	if err := a.readDataset(ctx); err != nil {
		return Volume{}, err
	}
	if err := a.checkPlace(ctx); err != nil {
		return Volume{}, err
	}
	var err error
	var marks, native []zfs.Setting
	uuid := newUUID()
	if a.dataset.Type() == zfs.Volume {
		marks, native, err = a.zvol(ctx, uuid)
	} else {
		marks, native, err = a.filesystem(ctx, uuid)
	}
	if err != nil {
		return Volume{}, err
	}
	if err := a.become(ctx, marks, native); err != nil {
		return Volume{}, err
	}
	r, err := a.readBack(ctx, uuid)
	if err != nil {
		return Volume{}, err
	}
	return r.volume(), nil
}

// readDataset reads what is to become a volume.
func (a *adoption) readDataset(ctx context.Context) error {
	d, err := a.cfg.ZFS.Get(ctx, a.request.Dataset)
	if errors.Is(err, zfs.ErrNotExist) || errors.Is(err, zfs.ErrNoParent) {
		return fault.New(fault.NotFound, "dataset %s does not exist; if it was adopted before, `tarn volumes` shows it", ident.Printable(a.request.Dataset))
	}
	a.dataset = d
	return describe(err, "read %s", a.request.Dataset)
}

// become sets what is missing, and then makes it a volume in one step. What is
// refused on the way is undone.
func (a *adoption) become(ctx context.Context, marks, native []zfs.Setting) error {
	from := a.request.Dataset
	refuse := func(err error, set []zfs.Setting) error {
		err = describe(err, "adopt %s as volume %s", from, a.id)
		if undo := a.putBack(ctx, &record{dataset: a.dataset}, set); undo != nil {
			return fault.New(kindOr(err, fault.Precondition), "%w; properties that were set on the way are there still: %v", err, undo)
		}
		return err
	}
	if err := a.dropStale(ctx, marks); err != nil {
		return err
	}
	all := slices.Concat(native, marks)
	if a.inPlace() {
		last := marks[0] // the name: see readRecord
		all = slices.Concat(native, marks[1:])
		if err := a.cfg.ZFS.SetAll(ctx, from, all); err != nil {
			return refuse(err, all)
		}
		if err := a.cfg.ZFS.Set(ctx, from, last); err != nil {
			return refuse(err, append(all, last))
		}
		return nil
	}
	if err := a.cfg.ZFS.SetAll(ctx, from, all); err != nil {
		return refuse(err, all)
	}
	if err := a.cfg.ZFS.Rename(ctx, from, a.to); err != nil {
		return refuse(err, all)
	}
	return nil
}

// dropStale removes what a former life as a volume has left on the dataset, such
// as publications of the host that it was received from, and a mountpoint that
// is no path.
func (a *adoption) dropStale(ctx context.Context, marks []zfs.Setting) error {
	kept := map[string]bool{}
	for _, m := range marks {
		kept[m.Name] = true
	}
	var stale []string
	for _, name := range a.dataset.OwnNames("tarn:") {
		if !kept[name] {
			stale = append(stale, name)
		}
	}
	if a.nowhere() {
		// Else ZFS mounts it at once (zfsprops(7), mountpoint).
		if err := a.cfg.ZFS.Set(ctx, a.request.Dataset, zfs.Setting{Name: "canmount", Value: "noauto"}); err != nil {
			return describe(err, "keep %s from being mounted", a.request.Dataset)
		}
		stale = append(stale, "mountpoint")
	}
	// In place, it must not become a volume before its time.
	if _, set := a.dataset.Own(propName); set && a.inPlace() {
		stale = append(stale, propName)
	}
	for _, name := range stale {
		if err := a.cfg.ZFS.Inherit(ctx, a.request.Dataset, name); err != nil {
			return describe(err, "remove %s from %s", name, a.request.Dataset)
		}
	}
	return nil
}

// nowhere reports that the dataset itself says that it has no mount point.
func (a *adoption) nowhere() bool {
	own, set := a.dataset.Own("mountpoint")
	return set && !strings.HasPrefix(own, "/")
}

// readBack reads the volume as every later call does.
func (a *adoption) readBack(ctx context.Context, uuid string) (*record, error) {
	d, err := a.cfg.ZFS.Get(ctx, a.to)
	if err != nil {
		return nil, describe(err, "read volume %s", a.id)
	}
	r, err := usable(a.id, d)
	if err != nil {
		return nil, err
	}
	if r.uuid != uuid {
		return nil, fault.New(fault.Aborted, "somebody else changed %s meanwhile: see `tarn volumes`", a.to)
	}
	return r, nil
}

// marks are the properties that make a dataset a volume, the name first.
func (a *adoption) marks(p params, c access.Capability, uuid string, bytes int64) ([]zfs.Setting, error) {
	return settings(a.name, uuid, p, canonicalCaps(p, []access.Capability{c}), bytes)
}

// differing leaves of native settings what is not so yet: a volmode that is set
// again takes the device away for a moment.
func (a *adoption) differing(list []zfs.Setting) []zfs.Setting {
	var rest []zfs.Setting
	for _, set := range list {
		if have, _ := a.dataset.Value(set.Name); have != set.Value {
			rest = append(rest, set)
		}
	}
	return rest
}

// thin reports that nothing is reserved for the volume.
func (a *adoption) thin() string {
	return strconv.FormatBool(a.dataset.Bytes("refreservation") == 0)
}
