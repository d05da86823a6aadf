package volume

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// MutableParameters returns the names of the parameters that may change during
// the life of a volume of that protocol, sorted; of any volume's when it is
// empty.
func MutableParameters(protocol string) []string {
	var list []string
	for name, rule := range zfsProperties {
		if rule.mutable && (protocol == "" || rule.protocol == "" || rule.protocol == protocol) {
			list = append(list, "zfs."+name)
		}
	}
	slices.Sort(list)
	return list
}

// parseMutable checks mutable parameters of a volume of that protocol and
// returns them as properties. It takes nothing that orchestrators add: they add
// nothing here.
func parseMutable(protocol string, m map[string]string) (map[string]string, error) {
	p := params{Protocol: protocol, ZFS: map[string]string{}}
	can := MutableParameters(protocol)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(can, key) {
			return nil, fault.New(fault.Invalid, "mutable parameter %q cannot be changed on a volume of protocol %s; those that can are %s",
				ident.Printable(key), protocol, strings.Join(can, ", "))
		}
		if err := p.setZFS(key, m[key]); err != nil {
			return nil, err
		}
	}
	return p.ZFS, p.normalizeBlocks()
}

// Modify gives a volume's mutable parameters new values; the parameters that
// are not named stay as they are. What has its value already is a success.
//
// Errors: fault.Invalid for a parameter that is unknown, cannot change, or
// whose value ZFS refuses; nothing is changed then, as `zfs set` is not atomic
// and the rest is put back.
func (s *Service) Modify(ctx context.Context, volumeID string, mutable map[string]string) error {
	id, err := s.parse(volumeID)
	if err != nil {
		return err
	}
	if len(mutable) == 0 {
		return fault.New(fault.Invalid, "mutable_parameters are missing; those that can be changed are %s", strings.Join(MutableParameters(""), ", "))
	}
	return s.lock(ctx, "ControllerModifyVolume", id, func(ctx context.Context) error {
		_, r, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		want, err := parseMutable(r.params.Protocol, mutable)
		if err != nil {
			return err
		}
		if err := s.modify(ctx, r, want); err != nil {
			return err
		}
		if atime, ok := want["atime"]; ok {
			return s.remount(ctx, r, atime != "off")
		}
		return nil
	})
}

// remount has a mounted volume follow its atime property, also after a call that
// was cut off before it.
func (s *Service) remount(ctx context.Context, r *record, atime bool) error {
	dir, mounted, err := s.cfg.Host.MountedAt(ctx, r.dataset.Name)
	if err != nil || !mounted {
		return err
	}
	return describe(s.cfg.Host.Remount(ctx, dir, atime), "modify volume %s", r.id)
}

// modify sets what is not so yet.
func (s *Service) modify(ctx context.Context, r *record, want map[string]string) error {
	var list []zfs.Setting
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have, _ := r.dataset.Own(name); have != want[name] {
			list = append(list, zfs.Setting{Name: name, Value: want[name]})
		}
	}
	if len(list) == 0 {
		return nil
	}
	err := s.cfg.ZFS.SetAll(ctx, r.dataset.Name, list)
	if err == nil {
		return nil
	}
	refused := describe(err, "modify volume %s", r.id)
	if fault.Kind(refused) == fault.NotFound || fault.Kind(refused) == fault.Unavailable {
		return refused
	}
	if err := s.putBack(ctx, r, list); err != nil {
		return fault.New(kindOr(refused, fault.Unavailable), "%w; what was set of it could not be put back (%s): repeat the call", refused, err)
	}
	return refused
}

// putBack gives properties the values and sources that the volume was read
// with. A value that came with a replication is put back as a local one.
func (s *Service) putBack(ctx context.Context, r *record, list []zfs.Setting) error {
	var before []zfs.Setting
	var errs []error
	for _, set := range list {
		if have, own := r.dataset.Own(set.Name); own {
			before = append(before, zfs.Setting{Name: set.Name, Value: have})
			continue
		}
		errs = append(errs, s.cfg.ZFS.Inherit(ctx, r.dataset.Name, set.Name))
	}
	if len(before) > 0 {
		errs = append(errs, s.cfg.ZFS.SetAll(ctx, r.dataset.Name, before))
	}
	return errors.Join(errs...)
}
