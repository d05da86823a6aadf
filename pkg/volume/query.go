package volume

import (
	"context"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// List returns the volumes of all pools by id, at most limit of them (zero:
// all), after the volume that token names, and the token of the next page. A
// volume that is deleted meanwhile does not disturb the order.
//
// fault.Aborted for a token that List did not make.
func (s *Service) List(ctx context.Context, limit int, token string) ([]Volume, string, error) {
	if err := s.checkPage(limit, token); err != nil {
		return nil, "", err
	}
	var all []Volume
	for _, name := range s.order {
		records, err := s.records(ctx, name)
		if err != nil {
			return nil, "", err
		}
		for _, r := range records {
			all = append(all, r.volume())
		}
	}
	list, next := page(all, func(v Volume) string { return v.ID }, limit, token)
	return list, next, nil
}

// checkPage checks what a listing is asked for.
func (s *Service) checkPage(limit int, token string) error {
	if limit < 0 {
		return fault.New(fault.Invalid, "max_entries must not be negative: %d", limit)
	}
	if token != "" {
		if _, err := s.parse(token); err != nil {
			return fault.New(fault.Aborted, "starting_token %q is not one of this driver: list again from the start", ident.Printable(token))
		}
	}
	return nil
}

// page returns the entries after the one whose id token is, at most limit of
// them (zero: all), and the token of the next page.
func page[T any](all []T, id func(T) string, limit int, token string) ([]T, string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	from, found := slices.BinarySearchFunc(all, token, func(t T, token string) int { return strings.Compare(id(t), token) })
	if found {
		from++
	}
	all = all[from:]
	if limit == 0 || len(all) <= limit {
		return all, ""
	}
	return all[:limit], id(all[limit-1])
}

// Get returns one volume. One whose properties make no sense is one, too.
// fault.NotFound when it does not exist.
func (s *Service) Get(ctx context.Context, volumeID string) (Volume, error) {
	id, err := s.parse(volumeID)
	if err != nil {
		return Volume{}, err
	}
	var v Volume
	err = s.read(ctx, "ControllerGetVolume", id.Pool, func(ctx context.Context) error {
		r, err := s.look(ctx, id)
		if err != nil {
			return err
		}
		v = r.volume()
		return nil
	})
	if err != nil {
		return Volume{}, err // the operation may still run
	}
	return v, nil
}

// look reads a volume, whether it can be worked with or not.
func (s *Service) look(ctx context.Context, id ident.VolumeID) (*record, error) {
	p, err := s.pool(id.Pool)
	if err != nil {
		return nil, err
	}
	d, err := s.cfg.ZFS.Get(ctx, p.dataset(id.Component))
	if err != nil {
		return nil, describe(err, "read volume %s", id)
	}
	r, ours := readRecord(id, d)
	if !ours {
		return nil, notOurs(id, d)
	}
	return r, nil
}

// records reads the volumes of one pool, with one command.
func (s *Service) records(ctx context.Context, name string) ([]*record, error) {
	p, err := s.pool(name)
	if err != nil {
		return nil, err
	}
	var list []*record
	err = s.read(ctx, "list", name, func(ctx context.Context) error {
		var err error
		list, err = s.listRecords(ctx, p)
		return err
	})
	if err != nil {
		return nil, err // the operation may still run
	}
	return list, nil
}

// listRecords is records inside of an operation.
func (s *Service) listRecords(ctx context.Context, p *pool) ([]*record, error) {
	datasets, err := s.cfg.ZFS.Children(ctx, p.cfg.Parent)
	if err != nil {
		return nil, ofParent(err, "list pool %q", p.cfg.Name)
	}
	var list []*record
	ids := []ident.VolumeID{}
	for _, d := range datasets {
		id := ident.VolumeID{Pool: p.cfg.Name, Component: strings.TrimPrefix(d.Name, p.cfg.Parent+"/")}
		if _, err := ident.ParseVolumeID(id.String()); err != nil {
			continue
		}
		if r, ours := readRecord(id, d); ours {
			list = append(list, r)
			ids = append(ids, id)
		}
	}
	p.saw(ids)
	return list, nil
}

// Validate reports why a volume cannot serve all of the capabilities or cannot
// take the mutable parameters; empty when it can. fault.NotFound when it does
// not exist.
func (s *Service) Validate(ctx context.Context, volumeID string, caps []access.Capability, mutable map[string]string) (string, error) {
	id, err := s.parse(volumeID)
	if err != nil {
		return "", err
	}
	if len(caps) == 0 {
		return "", fault.New(fault.Invalid, "no volume capability is given")
	}
	var reason string
	err = s.read(ctx, "ValidateVolumeCapabilities", id.Pool, func(ctx context.Context) error {
		_, r, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		err = checkCapabilities(r.params.Protocol, caps)
		if err == nil {
			_, err = parseMutable(r.params.Protocol, mutable)
		}
		if err != nil {
			reason = err.Error()
		}
		return nil
	})
	if err != nil {
		return "", err // the operation may still run
	}
	return reason, nil
}

// Capacity returns the bytes that volumes with these parameters can still
// take, and the smallest and largest volume that can be made: with room for the
// filesystems of the capabilities, or without any for that of the parameters,
// and not larger than what is left where the volume is thick.
func (s *Service) Capacity(ctx context.Context, parameters map[string]string, caps []access.Capability) (available, least, most int64, err error) {
	params, err := s.parseParamsForCapacity(parameters, caps)
	if err != nil {
		return 0, 0, 0, err
	}
	p, err := s.pool(params.Pool)
	if err != nil {
		return 0, 0, 0, err
	}
	var bytes int64 // not a result: the operation may outlive this call
	err = s.read(ctx, "GetCapacity", params.Pool, func(ctx context.Context) error {
		n, err := s.cfg.Host.Available(ctx, p.cfg.Parent)
		bytes = n
		return ofParent(err, "read what is available in %s", p.cfg.Parent)
	})
	if err != nil {
		s.cfg.Log.WithError(err).WithField("pool", params.Pool).Error("capacity cannot be read")
		return 0, 0, 0, err
	}
	if len(caps) == 0 {
		caps = []access.Capability{{Type: access.Mount}}
	}
	least, _ = params.smallest(caps)
	return bytes, least, params.largest(bytes), nil
}

// parseParamsForCapacity allows for a request without a protocol, since what is
// available does not depend on it: the first one is taken that can serve the
// rest.
func (s *Service) parseParamsForCapacity(m map[string]string, caps []access.Capability) (params, error) {
	if m["protocol"] != "" {
		return s.parseParamsWith(m, caps)
	}
	var first error
	for _, protocol := range s.Protocols() {
		p, err := s.parseParamsWith(merge(m, map[string]string{"protocol": protocol}), caps)
		if err == nil {
			return p, nil
		}
		if first == nil {
			first = err
		}
	}
	return params{}, first
}

// parseParamsWith checks parameters, and that they can serve the capabilities.
func (s *Service) parseParamsWith(m map[string]string, caps []access.Capability) (params, error) {
	p, err := s.parseParams(m)
	if err != nil {
		return p, err
	}
	for _, c := range caps {
		if err := checkCapability(p.Protocol, c); err != nil {
			return p, err
		}
	}
	return p, nil
}
